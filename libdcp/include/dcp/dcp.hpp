/* libdcp for C++11 and later: objects that free what they own, and failures as exceptions.
 * Header-only. The headers of the C interface document what each call does, and which calls are
 * collective.
 *
 *     dcp::Comm comm = dcp::comm_from_mpi(MPI_COMM_WORLD);    // include dcp/mpi.h first
 *     dcp::State state;
 *     state.add(dcp::tensor<float>("/model/w", {rows, cols}), box, data);
 *     dcp::Store store(comm, "ckpt");
 *     store.save(step, state, "{\"lr\": 0.1}");
 *     dcp::Checkpoint(comm, "ckpt").load(state);
 *
 * Objects can be moved but not copied. An object that was moved from is empty, and can only be
 * assigned to or destroyed. The communicator or store with which an object was made must outlive
 * it; objects of one scope are destroyed in the right order by themselves. A destructor is
 * collective if the C function that it calls is collective: if one rank alone could throw, let the
 * ranks agree first. get() returns the C object, for functions that have no method here. Options
 * are the C structs, initialized with their macros; functions that they point to must not throw:
 *
 *     dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
 *     options.layout = DCP_LAYOUT_SHARDED;
 *     store.save(step, state, json, &options); */
#ifndef DCP_DCP_HPP
#define DCP_DCP_HPP

#include <complex>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "dcp/dcp.h"

namespace dcp {

/* Thrown by a call that fails; what() is the message. */
class error : public std::runtime_error {
  public:
    explicit error(const dcp_error &err) : std::runtime_error(err.message), err_(err) {}
    int status() const noexcept { return err_.status; }
    const dcp_error &details() const noexcept { return err_; }

  private:
    dcp_error err_;
};

namespace detail {

/* Calls `f(&err)`, and throws if it fails. */
template <class F> void call(F f) {
    dcp_error err;
    if (f(&err) != DCP_OK) throw error(err);
}

/* Returns the object that `f(&object, &err)` makes. */
template <class T, class F> T *make(F f) {
    T *object = nullptr;
    call([&](dcp_error *err) { return f(&object, err); });
    return object;
}

template <class T, void (*destroy)(T *)> struct deleter {
    void operator()(T *object) const noexcept { destroy(object); }
};

/* Owns an object of the C interface. */
template <class T, void (*destroy)(T *)> class owner {
  public:
    T *get() const noexcept { return object_.get(); }
    explicit operator bool() const noexcept { return bool(object_); }
    T *release() noexcept { return object_.release(); }

  protected:
    explicit owner(T *object) noexcept : object_(object) {}
    std::unique_ptr<T, deleter<T, destroy>> object_;
};

inline void end_saving(dcp_saving *saving) { dcp_save_wait(saving, nullptr, nullptr); }
inline void end_loading(dcp_loading *loading) { dcp_load_wait(loading, nullptr, nullptr); }

inline const char *text_or_null(const std::string &text) {
    return text.empty() ? nullptr : text.c_str();
}

/* The dtype of an integer type, including long long and char, follows from its size and
 * signedness. */
template <class T> struct dtype {
    static_assert(std::is_integral<T>::value && sizeof(T) <= 8, "libdcp has no such element type");
    static constexpr dcp_dtype with_sign = sizeof(T) == 8   ? DCP_I64
                                           : sizeof(T) == 4 ? DCP_I32
                                           : sizeof(T) == 2 ? DCP_I16
                                                            : DCP_I8;
    static constexpr dcp_dtype without = sizeof(T) == 8   ? DCP_U64
                                         : sizeof(T) == 4 ? DCP_U32
                                         : sizeof(T) == 2 ? DCP_U16
                                                          : DCP_U8;
    static constexpr dcp_dtype value = std::is_signed<T>::value ? with_sign : without;
};
template <> struct dtype<double> { static constexpr dcp_dtype value = DCP_F64; };
template <> struct dtype<float> { static constexpr dcp_dtype value = DCP_F32; };
template <> struct dtype<bool> { static constexpr dcp_dtype value = DCP_BOOL; };
template <> struct dtype<std::complex<float>> { static constexpr dcp_dtype value = DCP_C64; };
template <> struct dtype<std::complex<double>> { static constexpr dcp_dtype value = DCP_C128; };

} // namespace detail

/* Returns a tensor of that type and shape; it borrows `path`. */
inline dcp_tensor tensor(const char *path, dcp_dtype type, const std::vector<uint64_t> &shape) {
    dcp_tensor t = dcp_tensor();
    if (shape.size() > DCP_MAX_DIMS) throw std::invalid_argument("dcp::tensor: over 8 dimensions");
    t.path = path;
    t.dtype = type;
    t.ndim = static_cast<uint32_t>(shape.size());
    for (size_t d = 0; d < shape.size(); d++) t.shape[d] = shape[d];
    return t;
}

/* Does the same for a C++ type: float, double, std::complex of either, bool, integers of 8 to 64
 * bits. */
template <class T> dcp_tensor tensor(const char *path, const std::vector<uint64_t> &shape) {
    return tensor(path, detail::dtype<T>::value, shape);
}

class Comm : public detail::owner<dcp_comm, dcp_comm_destroy> {
  public:
    /* Takes ownership of a communicator that a C function made. */
    explicit Comm(dcp_comm *owned) noexcept : owner(owned) {}
    static Comm self() { return Comm(detail::make<dcp_comm>(dcp_comm_self)); }
    static Comm from_ops(const dcp_comm_ops &ops, void *ctx, int rank, int size) {
        return Comm(detail::make<dcp_comm>([&](dcp_comm **out, dcp_error *err) {
            return dcp_comm_from_ops(&ops, ctx, rank, size, out, err);
        }));
    }
    int rank() const noexcept { return dcp_comm_rank(get()); }
    int size() const noexcept { return dcp_comm_size(get()); }
    void set_host(const std::string &name) {
        detail::call([&](dcp_error *err) {
            return dcp_comm_set_host(get(), detail::text_or_null(name), err);
        });
    }
    void set_stop(int (*stop)(void *), void *ctx) noexcept { dcp_comm_set_stop(get(), stop, ctx); }
    void set_limit(double seconds) {
        detail::call([&](dcp_error *err) { return dcp_comm_set_limit(get(), seconds, err); });
    }
};

#ifdef DCP_MPI_H
inline Comm comm_from_mpi(MPI_Comm mpi) {
    return Comm(detail::make<dcp_comm>(
        [&](dcp_comm **out, dcp_error *err) { return dcp_comm_from_mpi(mpi, out, err); }));
}
#endif

/* A GPU, or another device; experimental, like dcp/device.h. */
class Device : public detail::owner<dcp_device, dcp_device_cuda_destroy> {
  public:
    explicit Device(dcp_device *owned) noexcept : owner(owned) {}
    static Device cuda(int number, void *stream = nullptr) {
        return Device(detail::make<dcp_device>([&](dcp_device **out, dcp_error *err) {
            return dcp_device_cuda_create(number, stream, out, err);
        }));
    }
};

class State : public detail::owner<dcp_state, dcp_state_destroy> {
  public:
    State() : owner(detail::make<dcp_state>(dcp_state_create)) {}
    /* This rank holds the whole tensor. The memory is borrowed until the state is destroyed. */
    void add(const dcp_tensor &tensor, void *data) { add_box(tensor, nullptr, data); }
    void add(const dcp_tensor &tensor, const dcp_box &box, void *data) {
        add_box(tensor, &box, data);
    }
    /* Box i is boxes[i] of tensors[i], at data[i]. Adds either all boxes or none. */
    void add_many(const std::vector<dcp_tensor> &tensors, const std::vector<dcp_box> &boxes,
                  const std::vector<void *> &data) {
        if (boxes.size() != tensors.size() || data.size() != tensors.size())
            throw std::invalid_argument("State::add_many: as many tensors as boxes are needed");
        detail::call([&](dcp_error *err) {
            return dcp_state_add_many(get(), tensors.size(), tensors.data(), boxes.data(),
                                      data.data(), err);
        });
    }
    /* strides[d]: bytes from one index of dimension d to the next; `data`: the box's first element.
     */
    void add_strided(const dcp_tensor &tensor, const dcp_box &box, void *data,
                     const std::vector<int64_t> &strides) {
        if (strides.size() != tensor.ndim)
            throw std::invalid_argument(
                "State::add_strided: a stride for each dimension is needed");
        detail::call([&](dcp_error *err) {
            return dcp_state_add_strided(get(), &tensor, &box, data, strides.data(), err);
        });
    }
    void add_device(const dcp_tensor &tensor, const dcp_box &box, const dcp_device *device,
                    void *data) {
        detail::call([&](dcp_error *err) {
            return dcp_state_add_device(get(), &tensor, &box, device, data, err);
        });
    }
    size_t tensors() const noexcept { return dcp_state_tensors(get()); }
    uint64_t local_bytes() const noexcept { return dcp_state_local_bytes(get()); }

  private:
    void add_box(const dcp_tensor &tensor, const dcp_box *box, void *data) {
        detail::call([&](dcp_error *err) { return dcp_state_add(get(), &tensor, box, data, err); });
    }
};

/* A save in flight. The destructor waits for the end of the save and ignores a failure, which
 * wait() would throw. The state must live until then. */
class Saving : public detail::owner<dcp_saving, detail::end_saving> {
  public:
    explicit Saving(dcp_saving *owned) noexcept : owner(owned) {}
    /* The memory may change once this returns. */
    void fence() { dcp_save_fence(get()); }
    /* Like dcp_save_is_done: 1, 0, or DCP_ERR_STATE. */
    int is_done() const noexcept { return dcp_save_is_done(get()); }
    /* If this comes in time, wait() throws DCP_ERR_CANCELLED. */
    void cancel() noexcept { dcp_save_cancel(get()); }
    /* The object is empty afterwards. */
    dcp_report wait() {
        dcp_report report = DCP_REPORT_INIT;
        dcp_saving *saving = release();
        detail::call([&](dcp_error *err) { return dcp_save_wait(saving, &report, err); });
        return report;
    }
};

class Store : public detail::owner<dcp_store, dcp_store_close> {
  public:
    explicit Store(const Comm &comm, const std::string &dir,
                   const dcp_store_options *options = nullptr)
        : owner(detail::make<dcp_store>([&](dcp_store **out, dcp_error *err) {
              return dcp_store_open(comm.get(), dir.c_str(), options, out, err);
          })) {}
    /* `json`: "" means none. */
    dcp_report save(uint64_t step, const State &state, const std::string &json = "",
                    const dcp_save_options *options = nullptr) {
        dcp_report report = DCP_REPORT_INIT;
        detail::call([&](dcp_error *err) {
            return dcp_save(get(), step, state.get(), detail::text_or_null(json), options, &report,
                            err);
        });
        return report;
    }
    Saving save_async(uint64_t step, const State &state, const std::string &json = "",
                      const dcp_save_options *options = nullptr) {
        return Saving(detail::make<dcp_saving>([&](dcp_saving **out, dcp_error *err) {
            return dcp_save_async(get(), step, state.get(), detail::text_or_null(json), options,
                                  out, err);
        }));
    }
    void continue_from(uint64_t step) {
        detail::call([&](dcp_error *err) { return dcp_store_continue_from(get(), step, err); });
    }
    void mark_intact(uint64_t step) {
        detail::call([&](dcp_error *err) { return dcp_store_mark_intact(get(), step, err); });
    }
    void remove(uint64_t step) {
        detail::call([&](dcp_error *err) { return dcp_step_remove(get(), step, err); });
    }
    /* Returns the step that is complete now. */
    uint64_t rebuild(bool every_byte = false) {
        uint64_t step = 0;
        detail::call([&](dcp_error *err) {
            return dcp_store_rebuild(get(), every_byte, &step, nullptr, err);
        });
        return step;
    }
    int survives() const noexcept { return dcp_store_survives(get()); }
};

/* Protects a step's files from removal as long as the pin lives. */
class Pin : public detail::owner<dcp_pin, dcp_step_unpin> {
  public:
    explicit Pin(const std::string &step_path)
        : owner(detail::make<dcp_pin>([&](dcp_pin **out, dcp_error *err) {
              return dcp_step_pin(step_path.c_str(), out, err);
          })) {}
};

/* A load in flight, like Saving for a save. The content of the state's memory is undefined until
 * the load has succeeded. */
class Loading : public detail::owner<dcp_loading, detail::end_loading> {
  public:
    explicit Loading(dcp_loading *owned) noexcept : owner(owned) {}
    int is_done() const noexcept { return dcp_load_is_done(get()); }
    void cancel() noexcept { dcp_load_cancel(get()); }
    dcp_report wait() {
        dcp_report report = DCP_REPORT_INIT;
        dcp_loading *loading = release();
        detail::call([&](dcp_error *err) { return dcp_load_wait(loading, &report, err); });
        return report;
    }
};

class Checkpoint : public detail::owner<dcp_checkpoint, dcp_checkpoint_close> {
  public:
    explicit Checkpoint(dcp_checkpoint *owned) noexcept : owner(owned) {}
    Checkpoint(const Comm &comm, const std::string &path)
        : owner(detail::make<dcp_checkpoint>([&](dcp_checkpoint **out, dcp_error *err) {
              return dcp_checkpoint_open(comm.get(), path.c_str(), out, err);
          })) {}
    static Checkpoint open_private(const Comm &comm, const std::string &own_path) {
        return Checkpoint(detail::make<dcp_checkpoint>([&](dcp_checkpoint **out, dcp_error *err) {
            return dcp_checkpoint_open_private(comm.get(), detail::text_or_null(own_path), out,
                                               err);
        }));
    }
    dcp_report load(const State &state, const dcp_load_options *options = nullptr) {
        dcp_report report = DCP_REPORT_INIT;
        detail::call([&](dcp_error *err) {
            return dcp_load_with(get(), state.get(), options, &report, err);
        });
        return report;
    }
    Loading load_async(const State &state, const dcp_load_options *options = nullptr) {
        return Loading(detail::make<dcp_loading>([&](dcp_loading **out, dcp_error *err) {
            return dcp_load_async(get(), state.get(), options, out, err);
        }));
    }
    /* Reads one box of one tensor. Not collective. */
    void read(const std::string &path, const dcp_box &box, void *data) {
        detail::call([&](dcp_error *err) {
            return dcp_checkpoint_read(get(), path.c_str(), &box, data, err);
        });
    }
    std::string path() const { return dcp_checkpoint_path(get()); }
    uint64_t step() const noexcept { return dcp_checkpoint_step(get()); }
    dcp_layout layout() const noexcept { return dcp_checkpoint_layout(get()); }
    std::string json() const { return dcp_checkpoint_json(get()); }
    size_t tensors() const noexcept { return dcp_checkpoint_tensors(get()); }
    /* The pointers that these two return are valid until the checkpoint is closed; find returns
     * NULL if there is no such tensor. */
    const dcp_tensor *tensor(size_t i) const noexcept { return dcp_checkpoint_tensor(get(), i); }
    const dcp_tensor *find(const std::string &path) const noexcept {
        return dcp_checkpoint_find(get(), path.c_str());
    }
};

class Tiers : public detail::owner<dcp_tiers, dcp_tiers_close> {
  public:
    Tiers(const Comm &comm, const std::vector<dcp_tier> &list,
          const dcp_tiers_options *options = nullptr)
        : owner(detail::make<dcp_tiers>([&](dcp_tiers **out, dcp_error *err) {
              return dcp_tiers_open(comm.get(), list.data(), list.size(), options, out, err);
          })) {}
    bool is_due(uint64_t step) const noexcept { return dcp_tiers_is_due(get(), step) != 0; }
    bool has(size_t i, uint64_t step) const noexcept { return dcp_tiers_has(get(), i, step) != 0; }
    void continue_from(uint64_t step) {
        detail::call([&](dcp_error *err) { return dcp_tiers_continue_from(get(), step, err); });
    }
    void save_async(uint64_t step, const State &state, const std::string &json = "",
                    const dcp_save_options *options = nullptr) {
        detail::call([&](dcp_error *err) {
            return dcp_tiers_save_async(get(), step, state.get(), detail::text_or_null(json),
                                        options, err);
        });
    }
    void ask(size_t i) {
        detail::call([&](dcp_error *err) { return dcp_tiers_ask(get(), i, err); });
    }
    int rebuilt() const noexcept { return dcp_tiers_rebuilt(get()); }
    void fence() { dcp_tiers_fence(get()); }
    int is_done() const noexcept { return dcp_tiers_is_done(get()); }
    dcp_report wait() {
        dcp_report report = DCP_REPORT_INIT;
        detail::call([&](dcp_error *err) { return dcp_tiers_wait(get(), &report, err); });
        return report;
    }
    dcp_report save(uint64_t step, const State &state, const std::string &json = "",
                    const dcp_save_options *options = nullptr, bool also_last = true) {
        dcp_report report = DCP_REPORT_INIT;
        detail::call([&](dcp_error *err) {
            return dcp_tiers_save(get(), step, state.get(), detail::text_or_null(json), options,
                                  also_last, &report, err);
        });
        return report;
    }
    /* Loads the newest step that is complete, or can be rebuilt, into `state`, and returns its
     * number. */
    uint64_t load(const State &state) {
        uint64_t step = 0;
        detail::call([&](dcp_error *err) {
            return dcp_tiers_load(get(), load_state, state.get(), &step, err);
        });
        return step;
    }

  private:
    static int load_state(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
        return dcp_load(ckpt, static_cast<const dcp_state *>(ctx), nullptr, err);
    }
};

class Proof : public detail::owner<dcp_proof, dcp_proof_destroy> {
  public:
    Proof(const Comm &comm, const State &state, const dcp_prove_options *options = nullptr)
        : owner(detail::make<dcp_proof>([&](dcp_proof **out, dcp_error *err) {
              return dcp_prove(comm.get(), state.get(), options, out, err);
          })) {}
    uint64_t id() const noexcept { return dcp_proof_id(get()); }
    size_t tensors() const noexcept { return dcp_proof_tensors(get()); }
    const dcp_tensor *tensor(size_t i) const noexcept { return dcp_proof_tensor(get(), i); }
    uint64_t crc(size_t i) const noexcept { return dcp_proof_crc(get(), i); }
};

/* Returns the steps of a directory in ascending order. */
inline std::vector<dcp_step> steps(const std::string &dir) {
    dcp_step *list = nullptr;
    size_t n = 0;
    detail::call([&](dcp_error *err) { return dcp_steps_list(dir.c_str(), &list, &n, err); });
    const std::unique_ptr<dcp_step, void (*)(void *)> owned(list, std::free);
    return std::vector<dcp_step>(list, list + n);
}

/* Reads and checks every byte of a step's folder; throws if it is damaged. */
inline void verify(const std::string &path, const dcp_verify_options *options = nullptr) {
    detail::call([&](dcp_error *err) { return dcp_verify(path.c_str(), options, err); });
}

} // namespace dcp

#endif
