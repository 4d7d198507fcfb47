#!/bin/sh
# Runs a command as a kubelet runs the operator's container, without a container engine: as user 65532
# without any capability, in a root of its own that is read-only but for /tmp.
#   unshare --user --map-root-user --mount --propagation private \
#     container.sh ROOT TREE SCRATCH ACCOUNT INTERPRETER WORKDIR COMMAND...
# ROOT is an empty folder; TREE is seen as /opt/tonnage, SCRATCH as /tmp, ACCOUNT where a pod finds its
# ServiceAccount, INTERPRETER (sys.base_prefix) and the system's libraries where they are.
set -eu
root=$1 tree=$2 scratch=$3 account=$4 interpreter=$5 workdir=$6
shift 6

show() { # WHAT WHERE ro|rw
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o "remount,bind,$3" "$root$2"
}

mount -t tmpfs tmpfs "$root"
show /usr /usr ro
show "$interpreter" "$interpreter" ro
for folder in /bin /lib /lib64; do
  if [ -L "$folder" ]; then cp -P "$folder" "$root$folder"; else show "$folder" "$folder" ro; fi
done
show "$tree" /opt/tonnage ro
show "$account" /var/run/secrets/kubernetes.io/serviceaccount ro
show "$scratch" /tmp rw
mkdir "$root/dev" "$root/proc"
for device in null urandom; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mount --rbind /proc "$root/proc"
mount -o remount,ro "$root"

# Becoming another user unties a process from its parent's end, so it is tied again.
exec unshare --root="$root" --wd="$workdir" --user --map-user=65532 --map-group=65532 \
  setpriv --pdeathsig KILL --no-new-privs "$@"
