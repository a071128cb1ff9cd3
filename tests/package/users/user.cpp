/* What a program in C++ does with an installed libdcp: saves, saves beside other work, loads,
 * proves, moves objects, and catches errors. */
#if USE_MPI
#include <dcp/mpi.h>
#endif
#include <dcp/dcp.hpp>

#include <iostream>
#include <utility>

namespace {

void expect(bool holds, const char *what) {
    if (!holds) throw std::runtime_error(what);
}

template <class F> int status_of(F f) {
    try {
        f();
    } catch (const dcp::error &e) {
        expect(e.status() == e.details().status && *e.what(), "an error without a text");
        return e.status();
    }
    return DCP_OK;
}

void use(const dcp::Comm &comm, const std::string &dir) {
    const dcp_tensor w = dcp::tensor<float>("/model/w", {12, 5});
    const dcp_box mine = dcp_box_chunk(&w, comm.rank(), comm.size());
    std::vector<float> data(dcp_box_elems(&mine, w.ndim) + 1);
    for (size_t i = 0; i < data.size(); i++)
        data[i] = static_cast<float>(i) + 100.0f * static_cast<float>(comm.rank());
    const std::vector<float> kept = data;
    std::vector<int16_t> padded(3 * 8, 7); // up to 3 rows of 5, each in 8
    const dcp_tensor part = dcp::tensor<int16_t>("/model/padded", {3, 5});
    const dcp_box own = dcp_box_chunk(&part, comm.rank(), comm.size());
    expect(dcp::tensor<long long>("/model/i", {}).dtype == DCP_I64 &&
               dcp::tensor<unsigned long long>("/model/i", {}).dtype == DCP_U64 &&
               dcp::tensor<unsigned char>("/model/i", {}).dtype == DCP_U8,
           "a type of integers");
    dcp::State state;
    state.add(w, mine, data.data());
    std::complex<double> z(1, 2); // on all ranks: replicas
    const dcp_tensor scalar = dcp::tensor<std::complex<double>>("/model/z", {});
    state.add_many({scalar}, {dcp_box_whole(&scalar)}, {&z});
    state.add_strided(part, own, padded.data(), {8 * sizeof(int16_t), sizeof(int16_t)});
    const uint64_t id = dcp::Proof(comm, state).id();
    {
        dcp_store_options options = DCP_STORE_OPTIONS_INIT;
        options.tool = "user";
        dcp::Store opened(comm, dir, &options);
        dcp::Store store(std::move(opened));
        expect(!opened && store, "a store that did not move");
        expect(store.save(1, state, "{\"lr\": 0.5}").bytes ==
                   12 * 5 * sizeof(float) + 3 * 5 * sizeof(int16_t) + sizeof z,
               "bytes");
        expect(status_of([&] { store.save(1, state); }) == DCP_ERR_STATE, "a step saved twice");
        dcp::Saving saving = store.save_async(2, state);
        saving.fence();
        saving.wait();
        expect(!saving, "a saving that was waited for");
        { dcp::Saving left = store.save_async(3, state); } // published when it goes
        expect(dcp::steps(dir).size() == 3, "three steps");
        {
            dcp::Pin pin(dir + "/step-00000002");
            expect(status_of([&] { store.remove(2); }) == DCP_ERR_BUSY, "a pinned step");
        }
        dcp::Proof(comm, state); // all ranks have let go of it
        store.remove(2);
        expect(dcp::steps(dir).size() == 2, "two steps");
    }
    data.assign(data.size(), 0.0f);
    z = 0;
    data.back() = kept.back();
    dcp::Checkpoint ckpt(comm, dir);
    expect(ckpt.step() == 3 && ckpt.tensors() == 3 && ckpt.find("/model/w"), "what is in it");
    expect(dcp::Checkpoint(comm, dir + "/step-00000001").json().find("0.5") != std::string::npos,
           "the JSON");
    ckpt.load(state);
    ckpt.load_async(state).wait();
    dcp::Loading given_up = ckpt.load_async(state);
    given_up.cancel();
    const int status = status_of([&] { given_up.wait(); });
    expect(status == DCP_ERR_CANCELLED || status == DCP_OK, "a load that was given up");
    { dcp::Loading left = ckpt.load_async(state); } // loaded when it goes
    expect(data == kept && z == std::complex<double>(1, 2) && dcp::Proof(comm, state).id() == id,
           "what was loaded");
    expect(status_of([&] { dcp::Checkpoint(comm, dir + "/none"); }) == DCP_ERR_NOT_FOUND,
           "a folder that is missing");
    dcp::verify(ckpt.path());
}

int run(dcp::Comm comm, const std::string &dir) {
    try {
        use(comm, dir);
    } catch (const std::exception &e) {
        std::cerr << "user.cpp: " << e.what() << std::endl;
        return 1;
    }
    if (comm.rank() == 0) std::cout << "C++ on " << comm.size() << std::endl;
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
#if USE_MPI
    MPI_Init(&argc, &argv);
    const int status = run(dcp::comm_from_mpi(MPI_COMM_WORLD), argv[1]);
    MPI_Finalize();
    return status;
#else
    return run(dcp::Comm::self(), argv[1]);
#endif
}
