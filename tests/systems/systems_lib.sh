# Sourced by bare.sh and builds.sh: makes systems of Debian in $dir by debootstrap. The caller sets
# source, the repository, and dir; suite and part name the system. Exits with 77 if this machine
# cannot make any.
skip() { echo "$(basename "$0"): skipped: $1" >&2 && exit 77; }
[ "$(id -u)" -eq 0 ] || skip "only root can make a system"
command -v debootstrap >/dev/null || skip "there is no debootstrap (Debian: debootstrap)"
unshare --mount true 2>/dev/null || skip "no namespaces of mounts here"

make_base() { # makes the minbase system $dir/$suite unless it exists
    local base=$dir/$suite
    [ ! -e "$base/made" ] || return 0
    rm -rf "$base"
    debootstrap --variant=minbase "$suite" "$base" >"$dir/$suite.log" 2>&1 ||
        skip "debootstrap made no $suite: $(tail -n 1 "$dir/$suite.log")"
    rm -f "$base"/var/cache/apt/archives/*.deb
    touch "$base/made"
}

# within USER COMMAND: runs COMMAND in $system, with nothing of this machine's environment. Its
# mounts and processes end with it.
within() {
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        mount --make-rprivate /
        mount -t proc proc "$1/proc"
        mount --rbind /sys "$1/sys"
        mount --rbind /dev "$1/dev"
        mount -t tmpfs shm "$1/dev/shm"
        home=/root && [ "$2" = root ] || home=/home/$2
        exec chroot --userspec="$2" "$1" /usr/bin/env -i HOME="$home" USER="$2" LC_ALL=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd ~/libdcp; $3"
    ' _ "$system" "$@"
}

fresh_system() { # USER: the clone goes to this user's home; sets system
    local home=root
    system=$dir/$suite-$part
    rm -rf "$system"
    cp -a --reflink=auto "$dir/$suite" "$system"
    cp -L /etc/resolv.conf "$system/etc/resolv.conf"
    cp /etc/hosts "$system/etc/hosts"
    if [ "$1" != root ]; then
        home=home/$1
        chroot "$system" useradd --create-home --shell /bin/bash "$1"
    fi
    git clone --quiet --no-hardlinks "$source" "$system/$home/libdcp"
    chroot "$system" chown -R "$1:" "/$home/libdcp"
}
