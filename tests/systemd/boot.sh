#!/bin/sh
# In new mount, pid, cgroup, ipc and uts namespaces: make a root from the programs of this machine and run systemd there.
# boot.sh ROOT STAGING [PATH PLACE]…: STAGING is copied into the root; each PATH is shown at its PLACE, read-only.
set -eu
root=$1 staging=$2
shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$root"
cd "$root"
mkdir -p usr etc/systemd/system var/lib run tmp proc sys dev root old
chmod 1777 tmp
for dir in bin lib lib32 lib64 sbin; do [ ! -L /$dir ] || ln -s "usr/$dir" $dir; done
mount --rbind /usr usr
while [ $# -gt 0 ]; do
    mkdir -p ".$2"
    mount --rbind "$1" ".$2"
    mount -o remount,bind,ro ".$2"
    shift 2
done
mount -t proc proc proc
for path in proc/sys proc/sysrq-trigger; do [ ! -e $path ] || { mount --bind $path $path; mount -o remount,bind,ro $path; }; done
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=0755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
echo 'root:x:0:0::/root:/bin/sh' > etc/passwd
echo 'root:x:0:' > etc/group
printf 'passwd: files\ngroup: files\nhosts: files\n' > etc/nsswitch.conf
echo '127.0.0.1 localhost' > etc/hosts
echo 0123456789abcdef0123456789abcdef > etc/machine-id
cp /etc/ld.so.cache etc/
# The real machine handles its hardware, its kernel and its first boot.
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-modules-load.service systemd-sysctl.service \
    systemd-random-seed.service systemd-remount-fs.service systemd-update-utmp.service systemd-hwdb-update.service \
    systemd-machine-id-commit.service systemd-firstboot.service systemd-binfmt.service systemd-boot-system-token.service \
    kmod-static-nodes.service ldconfig.service systemd-journal-catalog-update.service systemd-timesyncd.service \
    proc-sys-fs-binfmt_misc.automount dev-hugepages.mount dev-mqueue.mount sys-kernel-config.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount; do
    ln -s /dev/null "etc/systemd/system/$unit"
done
cat > etc/systemd/system/proof.target <<UNIT
[Unit]
Requires=sysinit.target systemd-journald.service
After=sysinit.target systemd-journald.service
AllowIsolate=yes
UNIT
cp -a "$staging/." .
pivot_root . old
umount -l /old
cd /
exec env -i PATH=/usr/sbin:/usr/bin container=odradek setpriv --bounding-set=-sys_module,-sys_time,-sys_boot,-sys_rawio \
    /lib/systemd/systemd --system --unit=proof.target --log-target=journal --log-level=info --show-status=0
