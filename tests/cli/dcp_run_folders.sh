#!/usr/bin/env bash
# Open MPI's files are in folders of each start. They are removed when the start has ended, however
# the start and dcp-run have ended; similar folders of others stay.
. "$(dirname "$0")/dcp_run_lib.sh"
mkdir "$dir/tmp" "$dir/shm" "$dir/theirs"
export OMPI_MCA_orte_tmpdir_base=$dir/tmp OMPI_MCA_btl_vader_backing_directory=$dir/shm
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1

parent_of() { awk '/^PPid:/ {print $2}' "/proc/$1/status"; }
folders() { ls -d "$dir"/tmp/dcp-run.* "$dir"/shm/dcp-run.* 2>/dev/null | wc -l; }
none_left() { [ -z "$(ls -A "$dir/tmp" "$dir/shm" | grep -v ':$')" ]; }

begin() {
    rm -f "$dir"/up.*
    run -n 2 -- "$DCP_RUN_RANK" "$dir"
    until_true started 1
    until_true up 1
}

begin
[ "$(folders)" -eq 2 ] || fail "not two folders: $(ls "$dir/tmp" "$dir/shm")"
ls "$dir"/shm/dcp-run.*/vader_segment.* >/dev/null || fail "shared memory is elsewhere"
[ "$(ls "$dir/tmp" | wc -l)" -eq 1 ] || fail "something lies beside the folder: $(ls "$dir/tmp")"
kill -KILL "$(parent_of $(pids 1 | cut -d' ' -f1))" # mpirun
until_true started 2
until_true up 2
[ "$(folders)" -eq 2 ] || fail "the first start's folders are left: $(ls "$dir/tmp" "$dir/shm")"
echo 0 >"$dir/exit"
ends 0
none_left || fail "left: $(ls -A "$dir/tmp" "$dir/shm")"

rm "$dir/exit"
begin
kill -KILL $run
until_true none_left

# No process is left to remove the folders, so the next dcp-run does it, before its first start.
begin
first=$(pids 1 | cut -d' ' -f1)
kill -STOP "$run" # so it does not notice that its ranks end
kill -KILL "$(parent_of "$(parent_of "$first")")" "$run"
until_true gone $(pids 1)
[ "$(folders)" -eq 2 ] || fail "the folders are gone already"

# Folders that are not leftovers: without the mark, writable for others, a link, locked by a
# process, or with another name.
mkdir -m 700 "$dir"/tmp/dcp-run.{unmark,locked,longname} "$dir/theirs/marked"
mkdir -m 777 "$dir/tmp/dcp-run.public"
chmod 777 "$dir/tmp/dcp-run.public"
for folder in "$dir"/tmp/dcp-run.{public,locked,longname} "$dir/theirs/marked"; do
    : >"$folder/.dcp-run"
done
ln -s "$dir/theirs/marked" "$dir/tmp/dcp-run.linked"
: >"$dir/tmp/dcp-run.unmark/file"
exec 9<"$dir/tmp/dcp-run.locked"
flock 9
echo 0 >"$dir/exit"
run -n 1 -- "$DCP_RUN_RANK" "$dir"
ends 0
for name in unmark locked longname public linked; do
    [ -e "$dir/tmp/dcp-run.$name" ] || fail "dcp-run.$name is removed"
done
[ -e "$dir/theirs/marked/.dcp-run" ] || fail "what a link leads to is removed"
[ "$(folders)" -eq 5 ] || fail "folders of the killed run are left: $(ls "$dir/tmp" "$dir/shm")"
exec 9<&- # now the owner is dead
run -n 1 -- "$DCP_RUN_RANK" "$dir"
ends 0
[ ! -e "$dir/tmp/dcp-run.locked" ] || fail "the folder of a dead run is left"
