#!/usr/bin/env bash
# cmake/carry.sh: packs the libraries with which this machine builds into .vendor/libraries.tar.gz, for a
# machine that has neither these libraries nor a network. They come from the Debian packages that
# cmake/setup.sh --tests installs: headers, shared libraries with everything that they need, mpirun,
# mpicc and pkg-config. On the other machine, run
#     mkdir DIR; tar -xzf .vendor/libraries.tar.gz -C DIR; . DIR/env.sh
# before cmake; what is built then finds the libraries in DIR. tests/gpu.sh does this automatically. The
# other machine needs the same processor architecture, and a glibc that is not older than this machine's: otherwise
# env.sh says so and returns 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh --tests

packages=(libopenmpi-dev libopenmpi3 openmpi-bin openmpi-common libpmix2
    libhdf5-openmpi-dev libhdf5-openmpi-103-1 libisal-dev libisal2 libjansson-dev libjansson4
    liburing-dev liburing2 libdnnl-dev libdnnl2 libopenblas-serial-dev libopenblas0-serial
    libcmocka-dev libcmocka0 pkgconf-bin)
programs='orterun|orted|opal_wrapper|pkgconf'
# static libraries, other languages, other interfaces
unwanted='\.a$|fortran|java|mpifh|usempi|oshmem|/shmem|_cpp|_cxx|_hl|/cmake/|/lib(blas|lapack)|ompitrace'
# libraries that every machine with a C compiler has, and that must not be replaced by older ones
native='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|gomp))\.so'

triplet=$(gcc -print-multiarch)
glibc=$(getconf GNU_LIBC_VERSION | sed 's/.* //')
loader=$(ldd /usr/bin/orterun | grep -o '/[^ ]*/ld-linux[^ ]*')
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# keep FILE...: copies files into the tree, links as links.
keep() { cp -dn --parents -t "$tree" "$@"; }

# The packages' files that a build and mpirun read.
mapfile -t files < <(dpkg -L "${packages[@]}" | sort -u |
    grep -E "^/(usr/include/|usr/lib/$triplet/|usr/share/(openmpi|pmix)|etc/openmpi|usr/bin/($programs)$)" |
    grep -vE "$unwanted" | while read -r file; do [ -d "$file" ] && [ ! -L "$file" ] || echo "$file"; done)
keep "${files[@]}"

# The libraries that these files need.
mapfile -t objects < <(find "$tree" -type f \( -name '*.so*' -o -path '*/bin/*' \))
mapfile -t needed < <(LD_LIBRARY_PATH=$tree/usr/lib/$triplet/openblas-serial ldd "${objects[@]}" |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | grep -v "^$tree" | sort -u | grep -vE "$native")
mapfile -t needed < <(printf '%s\n' "${needed[@]}" && realpath "${needed[@]}")
mapfile -t needed < <(printf '%s\n' "${needed[@]/#\/lib\///usr/lib/}" | sort -u)
keep "${needed[@]}"

# Open MPI's libraries contain the path of their folder: replaces it by a relative path of the same length.
own=/usr/lib/$triplet/openmpi/lib
from_here=$(printf '%-*s' ${#own} '$ORIGIN:$ORIGIN/../../..')
LC_ALL=C grep -rlZaF "$own" "$tree/usr/lib" --include='*.so*' |
    LC_ALL=C xargs -0 sed -i "s,$own\x00,${from_here// //}\x00,g"

# Makes the paths in the packages' .pc files relative to these files.
pc=$tree/usr/lib/$triplet/pkgconfig
cp -n "$tree/usr/lib/$triplet/openblas-serial/pkgconfig/openblas.pc" "$pc/"
sed -i 's,\([= IL]\)/usr/,\1${pcfiledir}/../../../,; s,-\([IL]\)/usr/,-\1${pcfiledir}/../../../,g
    s,^prefix=/usr$,prefix=${pcfiledir}/../../..,' "$pc"/*.pc
missing=$(find "$tree" -xtype l)
[ -z "$missing" ] || { echo "carry: links that lead nowhere: $missing" >&2; exit 3; }

# The loader runs these programs with the tree's libraries, which no other program uses.
mv "$tree/usr/bin" "$tree/programs"
mkdir "$tree/usr/bin"
program() { # NAME PROGRAM
    cat >"$tree/usr/bin/$1" <<END
#!/bin/sh
exec $loader --argv0 $1 --library-path "\$CARRIED_LIBRARIES" "\$CARRIED/programs/$2" "\$@"
END
    chmod +x "$tree/usr/bin/$1"
}
program mpirun orterun
program mpiexec orterun
program orted orted
program mpicc opal_wrapper
program pkg-config pkgconf

cat >"$tree/env.sh" <<END
# To be sourced by bash: makes cmake, and what it builds, use this folder's libraries and programs.
CARRIED=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
here=\$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ "\$(uname -m)" != $(uname -m) ] || [ "\$(printf '%s\n' $glibc "\${here:-0}" | sort -V | head -n 1)" != $glibc ]; then
    echo "the carried libraries are for $(uname -m) with glibc $glibc or newer; here are \$(uname -m) and glibc \${here:-none}" >&2
    return 1
fi
lib=\$CARRIED/usr/lib/$triplet
export CARRIED CARRIED_LIBRARIES=\$lib:\$lib/openmpi/lib:\$lib/openblas-serial
export PATH=\$CARRIED/usr/bin:\$PATH PKG_CONFIG=\$CARRIED/usr/bin/pkg-config PKG_CONFIG_LIBDIR=\$lib/pkgconfig
export OPAL_DESTDIR=\$CARRIED PMIX_MCA_mca_base_component_path=\$lib/pmix2/lib/pmix
export OMPI_MCA_mca_base_component_show_load_errors=0 # hides errors about networks whose libraries were not packed
export OMPI_MCA_plm=isolated # only local ranks: otherwise mpirun requires ssh
export CMAKE_INCLUDE_PATH=\$CARRIED/usr/include CMAKE_LIBRARY_PATH=\$lib
# DT_RPATH, not DT_RUNPATH: it also applies to what libraries need, and to what they open
export LDFLAGS="-Wl,--disable-new-dtags,-rpath,\${CARRIED_LIBRARIES//:/,-rpath,}"
unset here lib
END

mkdir -p .vendor
tar -czf .vendor/libraries.tar.gz -C "$tree" .
du -h .vendor/libraries.tar.gz
