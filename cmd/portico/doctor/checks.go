package doctor

import (
	"context"
	"slices"
)

// check is a row of the table.
type check struct {
	name, what string
	run        func(ctx context.Context, t *target) finding
	// advice is what to do if it warns or fails.
	advice string
}

// checks are all checks, in the order in which they are shown.
var checks = slices.Concat(machineChecks, connectionChecks, processChecks, etcdChecks, serverChecks, objectChecks)

var machineChecks = []check{
	{"data-folder", "what portico up left in its folder, and whether it runs", dataFolder,
		"start portico up, or remove what is left of one that was killed: it makes its sockets anew; portico logs up says how it ended"},
	{"file-modes", "whether other users can read keys", fileModes,
		"chmod go-rwx what is named; if others could read a key, make new authorities"},
	{"disk-space", "space and inodes on the disk of the data folder", diskSpace,
		"free space: writes are refused below 64 MiB (docs/runbook.md#porticostoragefull)"},
	{"disk-sync", "how long a write to the disk takes (writes a file)", diskSync,
		"use a disk of its own for etcd, and no network storage: every write of an object waits for it (docs/runbook.md#porticoetcdslow)"},
	{"logs", "size of the logs", logSize,
		"remove rotated files that portico up no longer replaces, and find what logs so much: portico logs --tail=100"},
	{"key-pairs", "whether certificates and keys belong together", keyPairs,
		"restore both files from one backup, or remove both and start portico up, which makes them again"},
	{"certificates", "ends of certificates", certificateEnds,
		"portico up renews its own while it runs, and portico logs up says why it could not; elsewhere portico certs installation again, or portico certs issue server (or client) --force (docs/runbook.md#porticocertificateexpiration)"},
	{"authorities", "ends of authorities", authorityEnds,
		"portico up replaces its own while it runs, and portico certs rotate at once; those of portico certs init and portico certs installation are replaced step by step (docs/operations.md#authorities-that-end)"},
	{"open-files", "limit of open files of the processes", openFiles,
		"raise LimitNOFILE of the unit, or ulimit -n: connections are bounded by it (docs/runbook.md#porticofiledescriptors)"},
	{"memory", "memory of the processes beside what there is", memory,
		"give the machine or container more memory, or clients fewer watches (docs/runbook.md#porticomemory)"},
	{"systemd", "whether units of portico start with the machine", systemd,
		"systemctl enable what is named"},
}

var connectionChecks = []check{
	{"kubeconfig", "whether the kubeconfig can be used", kubeconfig,
		"name another one with --kubeconfig; portico certs kubeconfig makes one, and portico up at every start"},
	{"name", "whether the host in the kubeconfig resolves", hostName,
		"mend DNS or /etc/hosts, or use an address that the certificate has"},
	{"port", "whether the port of the gateway is reachable", port,
		"start the gateway; if it runs, look at --listen and at firewalls between"},
	{"proxy", "whether requests to the gateway go through an HTTP proxy", httpProxy,
		"add the host of the gateway to NO_PROXY"},
	{"server-certificate", "whether the gateway's certificate is for this address and trusted", serverCertificate,
		"issue one with --host for every name that clients use; take certificate-authority-data of the kubeconfig from serving-ca.crt"},
	{"clock", "difference between this clock and the gateway's", clock,
		"run a time service on both machines: tokens, certificates and leases depend on the time"},
}

var processChecks = []check{
	{"readiness", "checks of /readyz", readiness,
		"the log of the gateway has the reason (docs/runbook.md#porticonotready)"},
	{"servers", "whether the core and the CRD server answer the gateway, and processes that are silent", servers,
		"start the process, and look at its log (docs/runbook.md#porticoprocessdown); the Lease of one that is gone for good ends after an hour"},
	{"versions", "versions of all gateways, core and CRD servers, and of this program", versions,
		"upgrade the rest: versions may differ while that goes on (docs/runbook.md#kubeversionmismatch)"},
	{"leaders", "whether each election has a leader", leaders,
		"start a process of the kind; the log of those that run says why they do not lead (docs/runbook.md#porticonoleader)"},
	{"refusals", "requests that were refused since the gateway started", refusals,
		"429 is a limit, 503 a server that is away, 504 time: portico status shows the APIs (docs/runbook.md#kubeapiterminatedrequests)"},
	{"audit", "whether audit events go somewhere and none is lost", audit,
		"give --audit-policy-file and --audit-log-path or --audit-webhook-config-file together (docs/runbook.md#porticoauditloss)"},
	{"last-good", "documents from before the start that no server has confirmed", lastGood,
		"start the server that is away: portico backends (docs/runbook.md#porticolastgood)"},
}

var etcdChecks = []check{
	{"etcd-members", "whether all members answer, agree on a leader and are an odd number", etcdMembers,
		"start the member that is away; a number of three or five survives the loss of one or two (docs/runbook.md#porticoetcdsilent)"},
	{"etcd-alarms", "alarms of etcd", etcdAlarms,
		"NOSPACE: make room, then disarm; CORRUPT: replace the member (docs/runbook.md#porticostoragefull)"},
	{"etcd-space", "size of the database beside its quota", etcdSpace,
		"delete objects, defragment, or raise the quota of an etcd of your own (docs/runbook.md#porticoetcdspacelow)"},
	{"etcd-fragments", "free part of the database file", etcdFragments,
		"defragment one member after the other: etcdctl defrag; the embedded etcd reuses the space"},
	{"etcd-latency", "how long etcd takes to answer", etcdLatency,
		"look at the disk of etcd (portico doctor --write) and at the network to it (docs/runbook.md#porticoetcdslow)"},
}

var serverChecks = []check{
	{"apis", "APIServices that are not available", apis,
		"start the server, or mend what the message names (docs/runbook.md#kubeaggregatedapidown)"},
	{"endpoints", "endpoints of Backends that get no requests", endpoints,
		"portico backends NAME; the log of the endpoint (docs/runbook.md#porticoendpointunhealthy)"},
	{"single-endpoints", "Backends that fail with one process", singleEndpoints,
		"register a second endpoint: portico register NAME --url=URL --url=URL"},
	{"trust", "servers that are reached without verification", trust,
		"register with --ca-file: whatever answers at the address is believed and sees what users send"},
	{"discovery", "group/versions that are stale or left out of discovery", discovery,
		"start the server of the stale group; a server lists fewer than the limits (docs/runbook.md#porticodiscoverytruncated)"},
	{"openapi", "OpenAPI documents that cannot be used", openAPI,
		"the condition OpenAPIValid of the Backend has the reason (docs/runbook.md#porticoopenapibroken)"},
}

var objectChecks = []check{
	{"webhooks", "webhooks that cannot be called", webhooks,
		"start the Service of the webhook, or delete the configuration: it is not asked about itself"},
	{"webhook-scope", "webhooks that can refuse all writes", webhookScope,
		"set failurePolicy: Ignore, name the resources, or leave out namespaces by namespaceSelector"},
	{"definitions", "CustomResourceDefinitions that are not served as they say", definitions,
		"kubectl describe crd NAME; mend its names or its schema"},
	{"namespaces", "namespaces whose deletion does not end", namespaces,
		"the message names what remains and what to do; remove its finalizer, or start the server that has it"},
	{"anonymous", "what requests without credentials may read", anonymous,
		"delete the binding that gives system:anonymous or system:unauthenticated a role, or start the gateway with --anonymous-auth=false"},
	{"cluster-admin", "rights of all users", clusterAdmin,
		"kubectl delete clusterrolebinding what is named, and look in the audit log for what was done with it"},
	{"tokens", "whether a token of a service account is accepted (makes a token)", tokens,
		"give core and gateway the same --service-account-issuer, and the gateway the public part of core's signing key"},
	{"events", "number of events, which are removed by age only", events,
		"find what writes them: kubectl get events -A; shorten --event-ttl of core"},
}
