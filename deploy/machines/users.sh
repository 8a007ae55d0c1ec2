#!/bin/sh
# Makes the users of an etcd for the processes of Portico, and switches its authentication on. The users are
# the common names of client certificates: portico-gateway, portico-core and portico-crd, each of which
# writes only what its process serves, and root, which may do everything. All processes read everything of
# Portico, which each follows by one watch.
#
#   users.sh [GROUP...]   the CRD server writes objects of these API groups; without any of all
#
# ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY are those of root. It may be run again.
set -eu

grant() { # ROLE PERMISSION KEY [--prefix=true]
  etcdctl role grant-permission "$@"
}

# ensure COMMAND...: etcdctl for what may exist
ensure() {
  out=$(etcdctl "$@" 2>&1) || case $out in
  *"already exists"*) ;;
  *)
    echo "etcdctl $*: $out" >&2
    exit 1
    ;;
  esac
}

for process in gateway core crd; do
  ensure role add "portico-$process"
  ensure user add --no-password "portico-$process"
  ensure user grant-role "portico-$process" "portico-$process"
  grant "portico-$process" read /registry/ --prefix=true
  grant "portico-$process" read portico/ --prefix=true
  grant "portico-$process" read portico_revision
  grant "portico-$process" readwrite /registry/leases/kube-system/apiserver- --prefix=true
  grant "portico-$process" readwrite "portico/documents/registry/versions/$process"
done

for path in apiregistration.k8s.io/apiservices clusterrolebindings clusterroles flowschemas \
  gateway.portico.dev/backends masterleases prioritylevelconfigurations rolebindings roles; do
  grant portico-gateway readwrite "/registry/$path/" --prefix=true
done
grant portico-gateway readwrite compact_rev_key
for process in core crd; do
  grant "portico-$process" read compact_rev_key # for portico upgrade-check
done
for path in elections/registry/gateway elections/registry/compaction documents/registry/gateway; do
  grant portico-gateway readwrite "portico/$path/" --prefix=true
done

for path in \
  certificatesigningrequests clustertrustbundles configmaps controllerrevisions controllers cronjobs \
  csidrivers csinodes csistoragecapacities daemonsets deployments deviceclasses devicetaintrules \
  endpointslices events horizontalpodautoscalers ingress ingressclasses ipaddresses jobs leases \
  limitranges minions mutatingadmissionpolicies mutatingadmissionpolicybindings \
  mutatingwebhookconfigurations namespaces networkpolicies persistentvolumeclaims persistentvolumes \
  podcertificaterequests poddisruptionbudgets pods podtemplates priorityclasses ranges replicasets \
  resourceclaims resourceclaimtemplates resourcequotas resourceslices runtimeclasses secrets \
  serviceaccounts servicecidrs services/endpoints services/specs statefulsets storageclasses \
  storageversionmigrations validatingadmissionpolicies validatingadmissionpolicybindings \
  validatingwebhookconfigurations volumeattachments volumeattributesclasses; do
  grant portico-core readwrite "/registry/$path/" --prefix=true
done
for election in controllers garbage-collector service-repair; do
  grant portico-core readwrite "portico/elections/registry/$election/" --prefix=true
done
for path in /registry/apiextensions.k8s.io/customresourcedefinitions portico/elections/registry/crd portico/documents/registry/bars \
  portico/documents/registry/processes/crd; do
  grant portico-crd readwrite "$path/" --prefix=true
done

[ $# -gt 0 ] || grant portico-crd readwrite /registry/ --prefix=true
for group in "$@"; do
  grant portico-crd readwrite "/registry/$group/" --prefix=true
done

ensure user add --no-password root
ensure user grant-role root root
etcdctl auth enable
