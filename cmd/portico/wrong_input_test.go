package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/internal/testing/await"
)

// Wrong input ends a command with one line that names the flag, the argument or the file, before
// a process is started or a request sent.
func TestWrongInput(t *testing.T) {
	inFolderOfWrongInput(t)
	for line, want := range wrongInput {
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
			defer cancel()
			root := newRoot()
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			root.SetArgs(strings.Fields(line))
			err := root.ExecuteContext(ctx)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || ctx.Err() != nil {
				t.Errorf("got %v, want one line with %q", err, want)
			}
		})
	}
}

// inFolderOfWrongInput makes a folder with the files that wrongInput names the working folder.
func inFolderOfWrongInput(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "share"))
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none.kubeconfig"))
	for name, text := range map[string]string{
		"policy.yaml":     "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n",
		"bad-policy.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n",
		"empty":           "",
		"encryption.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{aescbc: {keys: []}}]}]\n",
		"issuers.yaml":    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{issuer: {url: http://a}}]\n",
		"egress.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{issuer: {url: https://a, audiences: [a], egressSelectorType: cluster}, " +
			"claimMappings: {username: {claim: sub, prefix: a}}}]\n",
		"admission.yaml":   "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: Nonsense}]\n",
		"empty.kubeconfig": "apiVersion: v1\nkind: Config\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wrongInput has a part of the error for each command line.
var wrongInput = map[string]string{
	// Encryption.
	"up --encryption-provider-config=nowhere.yaml":                                  "--encryption-provider-config: ",
	"up --encryption-provider-config=empty":                                         `encryption provider configuration file "empty" is empty`,
	"up --encryption-provider-config=encryption.yaml":                               "resources[0].providers[0].aescbc.keys: Required value",
	"gateway --etcd-servers=unix:///x --encryption-provider-config=encryption.yaml": "resources[0].providers[0].aescbc.keys: Required value",
	"core --etcd-servers=unix:///x --encryption-provider-config=encryption.yaml":    "resources[0].providers[0].aescbc.keys: Required value",
	"crd --etcd-servers=unix:///x --encryption-provider-config=encryption.yaml":     "resources[0].providers[0].aescbc.keys: Required value",
	"core --etcd-servers=unix:///x --encryption-provider-config-automatic-reload":   "--encryption-provider-config-automatic-reload without --encryption-provider-config",
	"up --encryption-provider-config-automatic-reload":                              "--encryption-provider-config-automatic-reload without --encryption-provider-config",

	"storage rewrite secrets":                                                             "--encryption-provider-config is missing",
	"storage rewrite --encryption-provider-config=empty":                                  "name resources",
	"storage rewrite secrets --all --encryption-provider-config=empty":                    "--all includes all resources",
	"storage rewrite secrets --rate=0 --encryption-provider-config=empty":                 "--rate=0: must be at least 1",
	"storage rewrite secrets --encryption-provider-config=empty --etcd-servers=unix:///x": "is empty",
	"storage rewrite secrets --encryption-provider-config=empty":                          "no portico up runs on",
	"adopt --dry-run --etcd-servers=unix:///x --encryption-provider-config=empty":         "is empty",
	"storage nonsense": "nonsense",
	// Certificates.
	"gateway --etcd-servers=unix:///x --client-crl-file=empty":         "--client-crl-file without --client-ca-file",
	"up --certificate-lifetime=1s":                                     "--certificate-lifetime=1s: must be at least 20s",
	"up --certificate-lifetime=1h --certificate-authority-lifetime=2h": "--certificate-authority-lifetime=2h0m0s: must be at least 4 times --certificate-lifetime, 4h0m0s",
	"up --certificate-authority-lifetime=-1h":                          "--certificate-authority-lifetime=-1h0m0s: must not be negative",

	// Commands and arguments.
	"nonsense":                              `unknown command "nonsense"`,
	"gatewy":                                `did you mean "gateway"`,
	"help nonsense":                         `unknown command "nonsense"`,
	"completion tcsh":                       `unknown command "tcsh"`,
	"--nonsense":                            "unknown flag: --nonsense",
	"up down":                               `"down": portico up takes no arguments`,
	"up --nonsense":                         "unknown flag: --nonsense",
	"gateway x":                             "takes no arguments",
	"core x":                                "takes no arguments",
	"crd x":                                 "takes no arguments",
	"version x":                             "takes no arguments",
	"certs nonsense":                        `unknown command "nonsense"`,
	"certs issue nonsense":                  `unknown command "nonsense"`,
	"backends a b":                          "too many arguments",
	"backends A/B":                          "not the name of a backend",
	"unregister":                            "an argument is missing",
	"explain-route":                         "an argument is missing",
	"routes x":                              "takes no arguments",
	"certs show":                            "an argument is missing",
	"certs show none.crt":                   "none.crt",
	"certs show empty":                      "empty",
	"certs init":                            "--ca-dir is missing",
	"certs kubeconfig":                      "--server is missing",
	"certs kubeconfig --server=x":           `--server "x": must have the form https://host:port`,
	"certs kubeconfig --server=https://x:1": "--user is missing",
	"certs issue server --ca-dir=none --host=h": "name the folder of the authorities with --ca-dir",

	// Values of flags.
	"up --v=high":                   "--v",
	"up --profiling=maybe":          "--profiling",
	"up --listen=nonsense":          "must have the form host:port",
	"up --listen=127.0.0.1:99999":   "127.0.0.1:99999",
	"up --listen=192.0.2.1:6443":    "listen on 192.0.2.1:6443",
	"up --discovery-grace=-1s":      "--discovery-grace=-1s: must not be negative",
	"up --discovery-grace=10":       "--discovery-grace",
	"up --max-requests-inflight=-1": "--max-requests-inflight",
	"gateway --max-requests-inflight=0 --max-mutating-requests-inflight=0": "their sum is the number of seats",
	"up --max-requests-inflight=0 --max-mutating-requests-inflight=0":      "their sum is the number of seats",
	"up --max-requests-inflight=x":                                         "--max-requests-inflight",
	"up --feature-gates=Nonsense=true":                                     `feature gate "Nonsense" is unknown`,
	"up --feature-gates=CBORServingAndStorage":                             "must be true or false",
	"up --controllers=nonsense":                                            "--controllers",
	"up --runtime-config=nonsense":                                         "--runtime-config",
	"up --runtime-config=apps/v9=true":                                     "--runtime-config",
	"up --service-cluster-ip-range=x":                                      "--service-cluster-ip-range",
	"up --service-cluster-ip-range=10.0.0.0/8,10.1.0.0/16":                 "--service-cluster-ip-range",
	"up --service-node-port-range=x":                                       "--service-node-port-range",
	"up --enable-admission-plugins=Nonsense":                               "Nonsense",
	"up --disable-admission-plugins=Nonsense":                              "Nonsense",
	"up --admission-control-config-file=none.yaml":                         "none.yaml",
	"up --admission-control-config-file=admission.yaml":                    "Nonsense",
	"up --terminated-pod-gc-threshold=x":                                   "--terminated-pod-gc-threshold",
	"up --data-dir=/proc/portico":                                          "--data-dir",
	"up --data-dir=policy.yaml/data":                                       "--data-dir",

	"up --tls-min-version=VersionTLS9":                                                       `--tls-min-version=VersionTLS9: unknown tls version "VersionTLS9"; possible values: VersionTLS10`,
	"up --tls-cipher-suites=NONSENSE":                                                        "--tls-cipher-suites=NONSENSE: Cipher suite NONSENSE not supported or doesn't exist",
	"up --tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA":                                    "--tls-cipher-suites: HTTP/2 needs TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or",
	"up --tls-curve-preferences=0":                                                           "--tls-curve-preferences",
	"up --tls-sni-cert-key=only.crt":                                                         "--tls-sni-cert-key=only.crt: expected comma separated certificate and key file paths",
	"up --tls-sni-cert-key=a.crt,a.key:":                                                     "empty names list is not allowed",
	"up --egress-selector-config-file=none.yaml":                                             "--egress-selector-config-file=none.yaml: unable to read",
	"up --egress-selector-config-file=policy.yaml":                                           "--egress-selector-config-file=policy.yaml: ",
	"up --cors-allowed-origins=example.com":                                                  "--cors-allowed-origins=example.com: regular expression does not pin to start/end of host in the origin header",
	"up --cors-allowed-origins=,^https://a$":                                                 "empty value in --cors-allowed-origins",
	"up --cors-allowed-origins=^https://(a$":                                                 "--cors-allowed-origins=^https://(a$: invalid regular expression",
	"up --strict-transport-security-directives=max-age":                                      "--strict-transport-security-directives=max-age: invalid, allowed values: max-age=expireTime, includeSubDomains, preload",
	"up --http2-max-streams-per-connection=10 --disable-http2-serving":                       "--http2-max-streams-per-connection has no effect with --disable-http2-serving",
	"gateway --goaway-chance=0.01 --disable-http2-serving --etcd-servers=http://127.0.0.1:1": "--goaway-chance has no effect with --disable-http2-serving",
	"up --http2-max-streams-per-connection=70000":                                            "--http2-max-streams-per-connection=70000: must be at most 65536",
	"up --max-request-header-bytes=100":                                                      "--max-request-header-bytes=100: must be at least 4096",
	"up --max-connections=2000000000":                                                        "--max-connections=2000000000: the process may have",
	"up --max-connections=9 --max-unauthenticated-connections=9":                             "--max-unauthenticated-connections=9: must be less than the 9 connections in all",

	// Flags that would have no effect.
	"up --tls-min-version=VersionTLS13 --tls-cipher-suites=TLS_AES_128_GCM_SHA256":                      "--tls-cipher-suites has no effect with --tls-min-version=VersionTLS13",
	"core --etcd-servers=http://127.0.0.1:1 --listen=unix:///x --tls-min-version=VersionTLS13":          "--tls-min-version has no effect: --listen names unix sockets only",
	"core --etcd-servers=http://127.0.0.1:1 --listen=unix:///x --permit-port-sharing":                   "--permit-port-sharing has no effect: --listen names unix sockets only",
	"gateway --etcd-servers=http://127.0.0.1:1 --listen=systemd:x,unix:///x --permit-port-sharing":      "--permit-port-sharing has no effect: --listen names no host:port",
	"up --listen=systemd:x --permit-port-sharing --data-dir=portico":                                    "--permit-port-sharing has no effect: --listen names no host:port",
	"crd --etcd-servers=http://127.0.0.1:1 --listen=unix:///x --max-connections-per-address=5":          "--max-connections-per-address has no effect: --listen names unix sockets only",
	"up --listen=unix:///x --listen=127.0.0.1:0 --data-dir=/proc/x --tls-cipher-suites=TLS_AES_128_GCM": "--tls-cipher-suites=TLS_AES_128_GCM: Cipher suite",
	"up --audit-log-path=audit.log":                                                                  "--audit-log-path without --audit-policy-file: nothing would be audited",
	"up --audit-webhook-config-file=x":                                                               "--audit-webhook-config-file without --audit-policy-file",
	"up --audit-policy-file=policy.yaml":                                                             "--audit-policy-file without --audit-log-path or --audit-webhook-config-file",
	"up --audit-policy-file=none.yaml --audit-log-path=-":                                            "none.yaml",
	"up --audit-policy-file=bad-policy.yaml --audit-log-path=-":                                      "bad-policy.yaml",
	"up --audit-policy-file=policy.yaml --audit-log-path=/proc/x/y":                                  "/proc/x/y",
	"up --audit-policy-file=policy.yaml --audit-log-path=- --audit-log-mode=fast":                    "fast",
	"up --etcd-certfile=a":                                                                           "--etcd-certfile without",
	"up --etcd-cafile=a":                                                                             "--etcd-cafile without --etcd-servers: the embedded etcd has no certificate",
	"up --etcd-keyfile=a --etcd-servers=https://127.0.0.1:1":                                         "--etcd-keyfile without --etcd-certfile",
	"up --kubelet-client-key=x":                                                                      "--kubelet-client-key without --kubelet-client-certificate",
	"up --cluster-signing-cert-file=x":                                                               "--cluster-signing-cert-file without --cluster-signing-key-file",
	"gateway --service-account-key-file=x":                                                           "--service-account-key-file without --service-account-issuer",
	"gateway --service-account-issuer=https://x":                                                     "--service-account-issuer without --service-account-key-file",
	"gateway --requestheader-allowed-names=x":                                                        "--requestheader-allowed-names without --requestheader-client-ca-file",
	"gateway --requestheader-username-headers=x":                                                     "--requestheader-username-headers without --requestheader-client-ca-file",
	"up --requestheader-group-headers=a,b:c":                                                         "--requestheader-group-headers=b:c: must be names of headers",
	"up --requestheader-extra-headers-prefix=,a":                                                     "--requestheader-extra-headers-prefix",
	"gateway --service-account-jwks-uri=https://x/y":                                                 "--service-account-jwks-uri without --service-account-issuer",
	"up --service-account-jwks-uri=http://x/y":                                                       "--service-account-jwks-uri=http://x/y: must be a URL with https and a host",
	"up --service-account-jwks-uri=https:///y":                                                       "--service-account-jwks-uri=https:///y: must be a URL with https and a host",
	"core --service-account-issuer=https://%zz --service-account-signing-key-file=x":                 "--service-account-issuer=https://%zz: has a colon and is not a URL",
	"core --enable-bootstrap-token-auth":                                                             "unknown flag: --enable-bootstrap-token-auth",
	"gateway --proxy-client-cert-file=x":                                                             "--proxy-client-cert-file without --proxy-client-key-file",
	"gateway --tls-cert-file=x":                                                                      "--tls-cert-file without --tls-private-key-file",
	"core --service-account-signing-key-file=x":                                                      "--service-account-signing-key-file without --service-account-issuer",
	"core --gateway-cert-file=x":                                                                     "--gateway-cert-file without",
	"core --gateway-ca-file=x":                                                                       "--gateway-ca-file without --gateway",
	"crd --gateway-key-file=x --gateway=https://x":                                                   "--gateway-key-file without --gateway-cert-file",
	"up --authentication-config=none.yaml":                                                           "none.yaml",
	"up --authentication-config=issuers.yaml":                                                        "URL scheme must be https",
	"up --authentication-config=egress.yaml":                                                         "--egress-selector-config-file names no proxy for it",
	"up --anonymous-auth=true --authorization-mode=AlwaysAllow":                                      "--anonymous-auth is not allowed with the AlwaysAllow authorizer",
	"up --authentication-config=x --oidc-client-id=x":                                                "authentication-config file and oidc-* flags are mutually exclusive",
	"up --oidc-issuer-url=https://a":                                                                 "--oidc-issuer-url without --oidc-client-id",
	"up --oidc-issuer-url=http://a --oidc-client-id=x":                                               "URL scheme must be https",
	"up --oidc-issuer-url=https://a --oidc-client-id=x --oidc-ca-file=none":                          "--oidc-ca-file",
	"up --oidc-issuer-url=https://a --oidc-client-id=x --oidc-signing-algs=HS256":                    "--oidc-signing-algs",
	"gateway --oidc-groups-claim=x":                                                                  "--oidc-groups-claim without --oidc-issuer-url: there is no issuer",
	"gateway --oidc-required-claim=x":                                                                "must have the form name=value",
	"gateway --etcd-servers=unix:///x --listen=unix:///y --admission-control-config-file=empty":      "--admission-control-config-file=empty: ",
	"crd --etcd-servers=unix:///x --admission-control-config-file=admission.yaml":                    "--admission-control-config-file without --gateway",
	"gateway --authentication-token-webhook-version=v1":                                              "--authentication-token-webhook-version without --authentication-token-webhook-config-file",
	"up --authentication-token-webhook-config-file=none":                                             "--authentication-token-webhook-config-file",
	"gateway --authentication-token-webhook-config-file=x --authentication-token-webhook-version=v2": "must be v1 or v1beta1",

	// Processes.
	"gateway":                           "--etcd-servers is missing",
	"core":                              "--etcd-servers is missing",
	"crd":                               "--etcd-servers is missing",
	"gateway --etcd-servers=foo":        "--etcd-servers=foo: must be https://host:port, http://host:port or unix:///path",
	"up --liste=127.0.0.1:0":            "unknown flag: --liste; did you mean --listen? (see portico up --help)",
	"up --etcd-servers=127.0.0.1:27999": "--etcd-servers=127.0.0.1:27999: must be https://host:port, http://host:port or unix:///path",
	"gateway --etcd-servers=http://127.0.0.1:1,https://127.0.0.1:2":                             "endpoints mix",
	"gateway --etcd-servers=https://127.0.0.1:1 --etcd-cafile=none":                             "none",
	"core --etcd-servers=https://127.0.0.1:1 --etcd-cafile=empty":                               "holds no certificate",
	"gateway --etcd-servers=http://127.0.0.1:1 --etcd-prefix=other":                             "--etcd-prefix=other: must begin with a slash",
	"core --listen=unix://relative.sock":                                                        "must be absolute",
	"core --event-ttl=-5s":                                                                      "--event-ttl=-5s: must not be negative",
	"up --service-account-max-token-expiration=1m":                                              "--service-account-max-token-expiration=1m0s: must be at least",
	"up --request-timeout=-1s":                                                                  "--request-timeout",
	"core --service-account-max-token-expiration=1m":                                            "--service-account-max-token-expiration=1m0s: must be at least",
	"core --advertise-address=foo":                                                              "--advertise-address=foo: must be an IP address",
	"gateway --advertise-address=0.0.0.0:6443":                                                  "--advertise-address=0.0.0.0:6443: must be an IP address",
	"gateway --request-timeout=-1s":                                                             "--request-timeout=-1s: must not be negative",
	"gateway --shutdown-delay-duration=-1s":                                                     "must not be negative",
	"gateway --goaway-chance=2 --etcd-servers=http://127.0.0.1:1":                               "goaway",
	"gateway --backend=foo":                                                                     "--backend",
	"gateway --backend=a=unix:///1 --backend=a=unix:///2 ":                                      "the name is used twice",
	"gateway --backend-ca-file=b=ca.crt":                                                        `no backend "b"`,
	"gateway --etcd-servers=http://127.0.0.1:1 --listen=127.0.0.1:0":                            "--tls-cert-file",
	"gateway --etcd-servers=http://127.0.0.1:1 --client-ca-file=none --listen=127.0.0.1:0":      "none",
	"gateway --authorization-mode=ABAC":                                                         "ABAC is not supported",
	"gateway --authorization-mode=RBAC,Nonsense":                                                `"Nonsense" is not a valid mode`,
	"gateway --authorization-mode=Webhook":                                                      "Webhook needs --authorization-webhook-config-file",
	"gateway --authorization-webhook-version=v1":                                                "--authorization-webhook-version without --authorization-mode=Webhook",
	"gateway --authorization-mode=Webhook --authorization-webhook-config-file=none":             "kubeconfig none",
	"gateway --authorization-config=none":                                                       "--authorization-config: open none",
	"gateway --authorization-config=admission.yaml":                                             "--authorization-config=admission.yaml: ",
	"gateway --authorization-config=admission.yaml --authorization-mode=RBAC":                   "--authorization-mode has no effect beside --authorization-config",
	"up --authorization-mode=RBAC,RBAC":                                                         "RBAC is given twice",
	"gateway --etcd-servers=http://127.0.0.1:1 --token-auth-file=none --listen=127.0.0.1:0":     "none",
	"gateway --etcd-servers=http://127.0.0.1:1 --tracing-config-file=none --listen=127.0.0.1:0": "none",
	"etcd": "data-dir",

	// Clients.
	"backends":                               "none.kubeconfig",
	"backends -o table":                      "-o table: must be wide, json or yaml",
	"backends --request-timeout=-1s":         "--request-timeout",
	"backends --kubeconfig=empty.kubeconfig": "read kubeconfig",
	"register":                               "an argument is missing",
	"register x":                             "--url",
	"register x --all-groups --url=nonsense --dry-run=client":    "nonsense",
	"register x --url=https://h:1 --wait=-1s":                    "--wait must not be negative",
	"register x --url=https://h:1 --all-groups -o json":          "--dry-run=client",
	"register x --url=https://h:1 --all-groups --dry-run=server": "must be none or client",
}
