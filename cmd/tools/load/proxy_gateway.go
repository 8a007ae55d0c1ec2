package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// registerLimit is how long all groups may take to be registered, and then to be
// served; registerAtOnce how many are registered at a time.
const (
	registerLimit  = time.Minute
	registerAtOnce = 16
)

// proxyStack is the installation whose gateway takes part: embedded etcd and
// all servers, of which the others have nothing to do.
type proxyStack struct {
	*stack
	o      options
	admin  *pool
	procs  processes
	groups int // registered so far
}

// startProxyStack starts it by a command that has it on the core that is not the
// proxies', and moves the gateway to theirs.
func startProxyStack(ctx context.Context, o *proxyOptions, cores *cores, before []string) (*proxyStack, error) {
	// A profile is taken through the administrator's connection; the folder is
	// only a sign that it may be.
	s := &proxyStack{o: options{portico: o.portico, profile: "on", connections: 1, before: before, audit: o.audit}}
	var err error
	if s.stack, err = startStack(ctx, &s.o); err != nil {
		return nil, err
	}
	if s.procs, err = findProcesses(s.o.dataDir); err == nil {
		err = cores.moveToProxy(s.procs["gateway"])
	}
	if err == nil {
		s.admin, err = openTarget(ctx, &s.o)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; %v", err, s.stop())
	}
	return s, nil
}

func (s *proxyStack) post(ctx context.Context, path string, v any) ([]byte, error) {
	var answer []byte
	err := untilTaken(ctx, askSeldom, func() (err error) {
		answer, err = s.admin.read(ctx, request{method: "POST", path: path, contentType: jsonType, body: jsonBody(v)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create at %s: %w", path, err)
	}
	return answer, nil
}

type object = map[string]any

// admit makes the user that asks: a service account that a role lets read the
// registered groups. It returns its token.
func (s *proxyStack) admit(ctx context.Context, backend chainAddress) (token string, err error) {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	host, port, err := splitPort(backend.Address)
	if err != nil {
		return "", err
	}
	accounts := "/api/v1/namespaces/" + proxyNamespace + "/serviceaccounts"
	meta := object{"name": "load-proxy"}
	for _, o := range []struct {
		path string
		body object
	}{
		{"/api/v1/namespaces", object{"metadata": object{"name": proxyNamespace}}},
		{accounts, object{"metadata": meta}},
		{rbac + "clusterroles", object{"metadata": meta, "rules": []object{
			{"apiGroups": []string{"*"}, "resources": []string{proxyPlural}, "verbs": []string{"get", "list", "watch"}},
		}}},
		{rbac + "clusterrolebindings", object{
			"metadata": meta, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "load-proxy"},
			"subjects": []object{{"kind": "ServiceAccount", "namespace": proxyNamespace, "name": "load-proxy"}},
		}},
		{"/api/v1/namespaces/" + proxyNamespace + "/services", object{
			"metadata": object{"name": proxyService},
			"spec":     object{"type": "ExternalName", "externalName": host, "ports": []object{{"port": port}}},
		}},
	} {
		if _, err := s.post(ctx, o.path, o.body); err != nil {
			return "", err
		}
	}
	answer, err := s.post(ctx, accounts+"/load-proxy/token", object{"spec": object{"expirationSeconds": 3600}})
	if err != nil {
		return "", err
	}
	var made struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &made); err != nil || made.Status.Token == "" {
		return "", fmt.Errorf("create token: %v", err)
	}
	return made.Status.Token, nil
}

// register has n groups served by the server, and waits until the gateway says
// that they are.
func (s *proxyStack) register(ctx context.Context, n int, backend chainAddress) error {
	_, port, err := splitPort(backend.Address)
	if err != nil {
		return err
	}
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate}))
	from := s.groups
	_, err = drive(ctx, registerAtOnce, bound{n - from, registerLimit}, nil, func(ctx context.Context, _, i int) (int64, error) {
		group := proxyGroup(from + i)
		_, err := s.post(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", object{
			"metadata": object{"name": proxyVersion + "." + group},
			"spec": object{
				"group": group, "version": proxyVersion, "groupPriorityMinimum": 1000, "versionPriority": 15,
				"caBundle": bundle, "service": object{"namespace": proxyNamespace, "name": proxyService, "port": port},
			},
		})
		return 0, err
	})
	if err != nil {
		return err
	}
	s.groups = n
	ctx, cancel := context.WithTimeoutCause(ctx, registerLimit, fmt.Errorf("not all groups were served within %v", registerLimit))
	defer cancel()
	for i := from; i < n; i++ {
		if err := s.awaitGroup(ctx, i); err != nil {
			return fmt.Errorf("wait for group %d: %w", i, err)
		}
	}
	return nil
}

// awaitGroup returns when a group is served.
func (s *proxyStack) awaitGroup(ctx context.Context, i int) error {
	for {
		_, err := s.admin.discard(ctx, 0, request{path: proxyObject(i, "small")})
		if refused := new(statusError); !errors.As(err, &refused) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; at last %w", context.Cause(ctx), err)
		case <-time.After(askSeldom):
		}
	}
}

// endpoint returns where the gateway listens, and whom to trust there.
func (s *proxyStack) endpoint() (address string, conf *tls.Config, err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.o.kubeconfig)
	if err != nil {
		return "", nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return "", nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	// The administrator's certificate stays here.
	conf, err = rest.TLSConfigFor(&rest.Config{Host: cfg.Host, TLSClientConfig: rest.TLSClientConfig{CAData: cfg.CAData, CAFile: cfg.CAFile}})
	if err != nil {
		return "", nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return u.Host, conf, nil
}

// end stops everything.
func (s *proxyStack) end() error {
	s.admin.close()
	return s.stack.stop()
}
