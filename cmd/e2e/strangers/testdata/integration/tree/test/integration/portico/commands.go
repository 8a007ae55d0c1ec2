package portico

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	netutils "k8s.io/utils/net"
)

// unstable matches a version in --runtime-config that Portico does not serve.
var unstable = regexp.MustCompile(`/v\d+(alpha|beta)\d+`)

// commands returns the arguments of each process.
func (s *Server) commands(opts *options.ServerRunOptions, gates []string, token string) (map[string][]string, error) {
	given := flags(opts)
	args := map[string][]string{}
	if err := passOn(s.t, given, args); err != nil {
		return nil, err
	}
	if slices.Contains(opts.Authorization.Modes, "ABAC") {
		s.t.Skipf("has the authorizer ABAC")
	}
	if err := s.certificates(opts); err != nil {
		return nil, err
	}
	clients, err := s.clients(opts.Authentication.ClientCert.ClientCA)
	if err != nil {
		return nil, err
	}
	for _, name := range processes {
		args[name] = append(args[name], "--etcd-prefix=/"+strings.TrimPrefix(opts.Etcd.StorageConfig.Prefix, "/"), "--feature-gates="+strings.Join(gates, ","))
	}
	for _, name := range []string{"core", "crd"} {
		args[name] = append(args[name], "--listen=unix://"+s.socket(name), "--gateway=https://"+opts.SecureServing.Listener.Addr().String(),
			"--gateway-ca-file="+opts.SecureServing.ServerCert.CertKey.CertFile, "--gateway-cert-file="+clients.certFile[name], "--gateway-key-file="+clients.keyFile)
	}
	// Tests have no controllers, or start those that they are about.
	args["core"] = append(args["core"], "--controllers=-namespace-controller", "--kubelet-allow-loopback")
	gateway, err := s.gatewayArgs(opts, clients, token)
	if err != nil {
		return nil, err
	}
	args["gateway"] = append(args["gateway"], gateway...)
	var switches []string
	for _, one := range given["runtime-config"] {
		for part := range strings.SplitSeq(one, ",") {
			if !unstable.MatchString(part) {
				switches = append(switches, part)
			}
		}
	}
	if len(switches) > 0 {
		args["core"] = append(args["core"], "--runtime-config="+strings.Join(switches, ","))
	}
	return args, s.serviceAccounts(opts, args)
}

// socket returns the path of the socket of a server.
func (s *Server) socket(name string) string { return filepath.Join(s.dir, name+".sock") }

// gatewayArgs returns arguments of the gateway for which the flags of kube-apiserver have other values.
func (s *Server) gatewayArgs(opts *options.ServerRunOptions, clients *clients, token string) ([]string, error) {
	tokens := filepath.Join(s.dir, "tokens.csv")
	var others []byte
	if opts.Authentication.TokenFile != nil && opts.Authentication.TokenFile.TokenFile != "" {
		var err error
		if others, err = os.ReadFile(opts.Authentication.TokenFile.TokenFile); err != nil {
			return nil, err
		}
	}
	line := fmt.Sprintf("%s,system:apiserver,%s,system:masters\n", token, token)
	if err := os.WriteFile(tokens, append([]byte(line), others...), 0o600); err != nil {
		return nil, err
	}
	serving := opts.SecureServing.ServerCert.CertKey
	args := []string{
		"--listen=systemd:gateway", "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + clients.caFile, "--token-auth-file=" + tokens,
		"--backend=core=unix://" + s.socket("core"), "--backend=crd=unix://" + s.socket("crd"),
	}
	if modes := opts.Authorization.Modes; len(modes) > 0 {
		args = append(args, "--authorization-mode="+strings.Join(modes, ","))
	} else if opts.Authorization.AuthorizationConfigurationFile == "" {
		args = append(args, "--authorization-mode=AlwaysAllow")
	}
	if opts.EndpointReconcilerType != "none" {
		// As kube-apiserver does without --advertise-address: an address of the machine, because endpoints are not on loopback.
		if err := opts.GenericServerRunOptions.DefaultAdvertiseAddress(opts.SecureServing.SecureServingOptions); err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(opts.SecureServing.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		args = append(args, "--advertise-address="+net.JoinHostPort(opts.GenericServerRunOptions.AdvertiseAddress.String(), port))
	}
	for _, sni := range opts.SecureServing.SNICertKeys {
		value := sni.CertFile + "," + sni.KeyFile
		if len(sni.Names) > 0 {
			value += ":" + strings.Join(sni.Names, ",")
		}
		args = append(args, "--tls-sni-cert-key="+value)
	}
	return args, nil
}

// serviceAccounts adds the keys of tokens of service accounts. Starters remove the files when they return.
func (s *Server) serviceAccounts(opts *options.ServerRunOptions, args map[string][]string) error {
	add := func(name, flag, from string) error {
		if from == "" {
			return nil
		}
		key, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		to := filepath.Join(s.dir, fmt.Sprintf("%s-%d", flag, len(args[name])))
		args[name] = append(args[name], "--"+flag+"="+to)
		return os.WriteFile(to, key, 0o600)
	}
	if err := add("core", "service-account-signing-key-file", opts.ServiceAccountSigningKeyFile); err != nil {
		return err
	}
	for _, file := range opts.Authentication.ServiceAccounts.KeyFiles {
		if err := add("gateway", "service-account-key-file", file); err != nil {
			return err
		}
	}
	return nil
}

// certificates makes the certificate of the server as kube-apiserver does, unless there is one.
func (s *Server) certificates(opts *options.ServerRunOptions) error {
	first, _, _ := strings.Cut(opts.ServiceClusterIPRanges, ",")
	_, cidr, err := netutils.ParseCIDRSloppy(first)
	if err != nil {
		return err
	}
	service, err := netutils.GetIndexedIP(cidr, 1)
	if err != nil {
		return err
	}
	return opts.SecureServing.MaybeDefaultWithSelfSignedCerts("127.0.0.1", []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}, []net.IP{service})
}
