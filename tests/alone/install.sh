#!/usr/bin/env bash
# install.sh BUILD_DIR: a build without MPI installs what a program of one process wants: its tools,
# and a package that CMake and pkg-config find, whose users need no MPI, in C and in C++.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/alone_install.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cmake --install "$1" --prefix "$dir/usr" >/dev/null
for program in train run reshard export import inspect bench; do
    "$dir/usr/bin/dcp-$program" --version >/dev/null
done
[ ! -e "$dir/usr/include/dcp/mpi.h" ]

cat >"$dir/user.c" <<'C'
#include <dcp/dcp.h>
#include <stddef.h>
int main(int argc, char **argv) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    dcp_tensor t = {"/model/w", DCP_F32, 2, {2, 3}};
    dcp_box whole = dcp_box_whole(&t);
    dcp_comm *comm = NULL;
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    if (argc != 2 || dcp_comm_self(&comm, NULL) || dcp_state_create(&state, NULL) ||
        dcp_state_add(state, &t, &whole, data, NULL) ||
        dcp_store_open(comm, argv[1], NULL, &store, NULL) ||
        dcp_save(store, 1, state, NULL, NULL, NULL, NULL))
        return 1;
    dcp_store_close(store);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    return 0;
}
C
cp "$dir/user.c" "$dir/user.cpp"
for language in C CXX; do
    mkdir "$dir/$language"
    suffix=$([ $language = C ] && echo c || echo cpp)
    cp "$dir/user.$suffix" "$dir/$language"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' "project(user $language)" \
        'find_package(dcp REQUIRED)' "add_executable(user user.$suffix)" \
        'target_link_libraries(user PRIVATE dcp::dcp)' >"$dir/$language/CMakeLists.txt"
    cmake -S "$dir/$language" -B "$dir/$language/build" -DCMAKE_PREFIX_PATH="$dir/usr" >/dev/null
    cmake --build "$dir/$language/build" >/dev/null
    "$dir/$language/build/user" "$dir/$language/ckpt"
done
export PKG_CONFIG_PATH=$(dirname "$(find "$dir/usr" -name dcp.pc)")
libdir=$(pkg-config --variable=libdir dcp)
cc -o "$dir/c" "$dir/user.c" $(pkg-config --cflags --libs dcp) -Wl,-rpath,"$libdir"
c++ -o "$dir/cxx" "$dir/user.cpp" $(pkg-config --cflags --libs dcp) -Wl,-rpath,"$libdir"
"$dir/c" "$dir/ckpt-c"
"$dir/cxx" "$dir/ckpt-cxx"
"$dir/usr/bin/dcp-inspect" verify "$dir/ckpt-cxx" >/dev/null
