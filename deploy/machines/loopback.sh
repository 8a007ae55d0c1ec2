#!/usr/bin/env bash
# The installation of README.md on loopback addresses of one machine: three etcd members, three gateways, two core and
# two CRD servers, with mutual TLS and a user of etcd for each process.
#
#   loopback.sh up FOLDER          makes it in FOLDER, runs it, and stops it when it is interrupted
#   loopback.sh init FOLDER        makes certificates and configurations only
#   loopback.sh run FOLDER NAME    becomes one process, such as etcd-0, gateway-2, core-1 or crd-0
#   loopback.sh users FOLDER       makes the users of etcd, once its members run
#
# portico, etcd and etcdctl are programs in $PATH. Gateways are 127.0.0.1 to .3, servers behind them .4 and .5, members of
# etcd .7 to .9. The environment may set:
#
#   NETWORK   the first three bytes of the addresses, 127.0.0
#   GATEWAY   URL of the load balancer in front of the gateways; without it the first gateway
#   DELAY     how long a process serves on after SIGTERM, for load balancers to notice; 3s
#   BEHIND    what each process adds to the port that it listens on, for a test that relays connections; 0
set -eu -o pipefail
umask 077
here=$(cd "$(dirname "$0")" && pwd)
network=${NETWORK:-127.0.0}
gateway=${GATEWAY:-https://$network.1:6443}
balancer=${gateway#https://} balancer=${balancer%:*}
behind=${BEHIND:-0}
delay=${DELAY:-3s}
issuer=https://portico.example.com
members=(etcd-0 etcd-1 etcd-2)
servers=(core-0 core-1 crd-0 crd-1 gateway-0 gateway-1 gateway-2)
pids=()

# step TEXT...: says what is being done
step() { echo "loopback.sh: $*" >&2; }

# address NAME: the address and the port at which others reach a process
address() {
  case $1 in
  gateway-*) echo "$network.$((1 + ${1#*-})):6443" ;;
  core-*) echo "$network.$((4 + ${1#*-})):7443" ;;
  crd-*) echo "$network.$((4 + ${1#*-})):7444" ;;
  etcd-*) echo "$network.$((7 + ${1#*-})):2379" ;;
  esac
}

# probe NAME: the address for health checks and metrics of a server
probe() {
  local at port=8080
  at=$(address "$1")
  [[ $1 != crd-* ]] || port=8081
  echo "${at%:*}:$port"
}

# listens ADDRESS: where the process at an address listens
listens() { echo "${1%:*}:$((${1##*:} + behind))"; }

# urls NAME...: the URLs of processes, with commas
urls() {
  local list=() name
  for name in "$@"; do list+=("https://$(address "$name")"); done
  (IFS=, && echo "${list[*]}")
}

# certificates: a folder of pki for the processes of each kind, with the keys that they need and no other
certificates() {
  # A member accepts another one from an address in its certificate: on loopback that is 127.0.0.1.
  local hosts=(--etcd-host=127.0.0.1) name at
  for name in "${members[@]}" "${servers[@]}"; do
    at=$(address "$name")
    hosts+=("--${name%-*}-host=${at%:*}")
  done
  portico certs installation --dir=pki --server="$gateway" --gateway-host="$balancer" "${hosts[@]}" >/dev/null
}

# configuration NAME: the file of a gateway, a core or a CRD server
configuration() {
  local kind=${1%-*}
  cat <<END
apiVersion: config.portico.dev/v1alpha1
kind: PorticoConfiguration
$kind:
  listen: $(listens "$(address "$1")")
  tls-cert-file: pki/$kind/$kind.crt
  tls-private-key-file: pki/$kind/$kind.key
  requestheader-client-ca-file: pki/$kind/front-proxy-ca.crt
  requestheader-allowed-names: [front-proxy-client]
  etcd-servers: [$(urls "${members[@]}")]
  etcd-cafile: pki/$kind/etcd-ca.crt
  etcd-certfile: pki/$kind/etcd-client.crt
  etcd-keyfile: pki/$kind/etcd-client.key
  shutdown-delay-duration: $delay
  probe-listen: $(probe "$1")
END
  [ "$kind" = gateway ] || cat <<END
  gateway: $gateway
  gateway-ca-file: pki/$kind/serving-ca.crt
  gateway-cert-file: pki/$kind/$kind-client.crt
  gateway-key-file: pki/$kind/$kind-client.key
END
  case $kind in
  gateway) cat <<END ;;
  instance-id: $1
  state-dir: $1
  client-ca-file: pki/gateway/client-ca.crt
  proxy-client-cert-file: pki/gateway/front-proxy-client.crt
  proxy-client-key-file: pki/gateway/front-proxy-client.key
  service-account-issuer: $issuer
  service-account-key-file: [pki/gateway/service-account.pub]
  backend-ca-file: [pki/gateway/serving-ca.crt]
  backend:
  - core=$(urls core-0 core-1)
  - crd=$(urls crd-0 crd-1)
END
  core) cat <<END ;;
  service-account-issuer: $issuer
  service-account-signing-key-file: pki/core/service-account.key
  root-ca-file: pki/core/serving-ca.crt
END
  esac
}

init() {
  step "making certificates and configurations in $PWD"
  certificates
  local name
  for name in "${servers[@]}"; do configuration "$name" >"$name.yaml"; done
}

# member NAME: runs a member of etcd, which believes nothing without a certificate
member() {
  local host client peers=() name
  client=$(address "$1") host=${client%:*}
  for name in "${members[@]}"; do
    local at
    at=$(address "$name")
    peers+=("$name=https://${at%:*}:2380")
  done
  exec etcd --name="$1" --data-dir="$1" --logger=zap --log-level=warn \
    --listen-client-urls="https://$(listens "$client")" --advertise-client-urls="https://$client" \
    --listen-client-http-urls="https://$(listens "$host:2381")" \
    --listen-peer-urls="https://$(listens "$host:2380")" --initial-advertise-peer-urls="https://$host:2380" \
    --initial-cluster="$(IFS=, && echo "${peers[*]}")" --initial-cluster-token=portico \
    --cert-file=pki/etcd/etcd.crt --key-file=pki/etcd/etcd.key --trusted-ca-file=pki/etcd/etcd-client-ca.crt --client-cert-auth \
    --peer-cert-file=pki/etcd/etcd.crt --peer-key-file=pki/etcd/etcd.key --peer-trusted-ca-file=pki/etcd/etcd-ca.crt \
    --peer-client-cert-auth --enable-grpc-gateway=false
}

# run NAME: becomes the process
run() {
  case $1 in
  etcd-*) member "$1" ;;
  *) exec portico "${1%-*}" --config="$1.yaml" ;;
  esac
}

# control ARGUMENT...: etcdctl as the user root
control() {
  ETCDCTL_ENDPOINTS=$(urls "${members[@]}") ETCDCTL_CACERT=pki/admin/etcd-ca.crt ETCDCTL_CERT=pki/admin/etcd-root.crt \
    ETCDCTL_KEY=pki/admin/etcd-root.key "$@"
}

# users makes the users of etcd, once its members run
users() {
  step "waiting for etcd, and making its users"
  until control etcdctl endpoint health >/dev/null 2>&1; do sleep 0.1; done
  control "$here/users.sh" >/dev/null
}

# start NAME...: runs processes in the background, with their logs in FOLDER/logs
start() {
  local name
  for name in "$@"; do
    (run "$name") >>"logs/$name.log" 2>&1 &
    pids+=($!)
  done
}

# stop ends the servers in order, and then etcd
stop() {
  kill "${pids[@]:${#members[@]}}" || true
  wait "${pids[@]:${#members[@]}}" || true
  kill "${pids[@]::${#members[@]}}" || true
  wait || true
}

# ready: waits until all servers take requests behind all gateways
ready() {
  local name
  for name in gateway-0 gateway-1 gateway-2; do
    sed "s|server: .*|server: https://$(address "$name")|" pki/admin/kubeconfig >"$name.kubeconfig"
    until [ "$(portico backends --kubeconfig="$name.kubeconfig" 2>/dev/null | grep -c ' 2/2 .* True ')" = 2 ]; do sleep 0.1; done
  done
}

up() {
  mkdir -p logs
  [ -e pki ] || init
  trap 'stop 2>/dev/null' EXIT
  trap 'exit 0' INT TERM
  step "starting ${members[*]}; logs are in $PWD/logs"
  start "${members[@]}"
  control etcdctl user list 2>/dev/null | grep -q root || users
  local began=${EPOCHREALTIME/./}
  step "starting ${servers[*]}"
  start "${servers[@]}"
  step "waiting until core and crd answer behind all gateways"
  ready
  echo "ready after $(((${EPOCHREALTIME/./} - began) / 1000)) ms; KUBECONFIG=$PWD/pki/admin/kubeconfig; Ctrl-C stops it"
  wait
}

[ $# -ge 2 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
mkdir -p "$2"
cd "$2"
case $1 in
up | init | users) "$1" ;;
run) run "$3" ;;
*) echo "loopback.sh: there is no command $1" >&2; exit 2 ;;
esac
