# boot.sh ROOT GROUP boots the system in the folder ROOT, in the cgroup GROUP, which it makes. It prints the process id of the
# parent of systemd, stops the system when its input ends, and then removes GROUP.
set -eu
trap '' INT # of the terminal: the input ends, too
mkdir "$2"
(
    sh -c 'echo $PPID' >"$2/cgroup.procs"
    exec unshare --mount --pid --uts --ipc --net --cgroup --fork sh -euc '
        # Mounts are seen in here only. What the kernel shares among namespaces cannot be written.
        mount --make-rprivate /
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --bind proc/sys proc/sys
        mount --bind proc/sys/net proc/sys/net
        mount -o remount,ro,bind proc/sys
        mount -t sysfs -o ro sysfs sys
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        mount -t tmpfs -o mode=755 tmpfs dev
        mkdir dev/pts dev/shm
        mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
        ln -s pts/ptmx dev/ptmx
        ln -s /proc/self/fd dev/fd
        for device in null zero full random urandom tty; do
            touch "dev/$device"
            mount --bind "/dev/$device" "dev/$device"
        done
        mount -t tmpfs tmpfs run
        mkdir outside
        pivot_root . outside
        umount -l /outside
        rmdir /outside
        mount --make-rshared / # systemd mounts the credentials of units
        exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
    ' sh "$1"
) </dev/null >&2 &
echo $!
cat >/dev/null
echo 1 >"$2/cgroup.kill"
wait || true
until find "$2" -depth -type d -exec rmdir {} \; 2>/dev/null && [ ! -d "$2" ]; do sleep 0.1; done
