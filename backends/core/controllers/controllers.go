package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clientrest "k8s.io/client-go/rest"

	"portico/resource/loop"
)

// Controller is a row of All.
type Controller struct {
	// Name is that of the controller in kube-controller-manager.
	Name string
	// OffByDefault: the controller runs only if --controllers names it.
	OffByDefault bool
	// Run runs the controller until ctx ends. If it returns an error earlier, it is called
	// again with another Env. nil: package core runs the controller.
	Run func(ctx context.Context, env *Env) error
}

// All returns the controllers, in alphabetical order.
func All() []Controller {
	return []Controller{
		{Name: "certificatesigningrequest-approving-controller", Run: approveCertificates},
		{Name: "certificatesigningrequest-cleaner-controller", Run: cleanCertificates},
		{Name: "certificatesigningrequest-signing-controller", Run: signCertificates},
		{Name: "disruption-controller", Run: runDisruption},
		{Name: "endpoints-controller", Run: runEndpoints},
		{Name: "endpointslice-controller", Run: runEndpointSlices},
		{Name: "endpointslice-mirroring-controller", Run: runMirroring},
		{Name: GarbageCollector},
		{Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", Run: publishServingTrust},
		{Name: "legacy-serviceaccount-token-cleaner-controller", Run: cleanLegacyTokens},
		{Name: Namespace},
		{Name: "persistentvolume-protection-controller", Run: runPVProtection},
		{Name: "persistentvolumeclaim-protection-controller", Run: runClaimProtection},
		{Name: "pod-garbage-collector-controller", Run: runPodGC},
		{Name: "podcertificaterequest-cleaner-controller", Run: cleanPodCertificates},
		{Name: "resourcequota-controller", Run: resourceQuota},
		{Name: RootCAPublisher},
		{Name: "service-cidr-controller", Run: runServiceCIDRs},
		{Name: ServiceAccount},
		{Name: "serviceaccount-token-controller", Run: fillTokenSecrets},
		{Name: migratorName, Run: storageVersionMigrator},
		{Name: "ttl-after-finished-controller", Run: ttlAfterFinished},
	}
}

// The names of the controllers that package core runs.
const (
	GarbageCollector = "garbage-collector-controller"
	Namespace        = "namespace-controller"
	RootCAPublisher  = "root-ca-certificate-publisher-controller"
	ServiceAccount   = "serviceaccount-controller"
)

// Selection is the value of --controllers: * selects all that are on by default, a name that
// controller, and -name deselects it. Make it with Select.
type Selection []string

// Select checks a value of --controllers; an empty one is *.
func Select(values []string) (Selection, error) {
	if len(values) == 0 {
		return Selection{"*"}, nil
	}
	for _, v := range values {
		if v != "*" && !slices.ContainsFunc(All(), func(c Controller) bool { return c.Name == strings.TrimPrefix(v, "-") }) {
			return nil, fmt.Errorf("%q is not in the list of known controllers; it is *, or one of these, or - and one of these: %s", v, strings.Join(Names(), ", "))
		}
	}
	return values, nil
}

// Names returns the names of all controllers.
func Names() []string {
	var out []string
	for _, c := range All() {
		out = append(out, c.Name)
	}
	return out
}

// Has reports whether a controller is selected. The first value that names it decides.
func (s Selection) Has(name string) bool {
	for _, v := range s {
		if strings.TrimPrefix(v, "-") == name {
			return v == name
		}
	}
	return slices.Contains(s, "*") && !slices.ContainsFunc(All(), func(c Controller) bool { return c.Name == name && c.OffByDefault })
}

// Config is the configuration of Run.
type Config struct {
	// Gateway configures the clients. Required, as is the rest.
	Gateway *clientrest.Config
	// Mapper finds the kinds behind the gateway; NewMapper makes it.
	Mapper    meta.RESTMapper
	Selection Selection
	Options   Options
	Log       *slog.Logger
}

// Options are the settings of single controllers.
type Options struct {
	// Signing has the authorities of the built-in signers of certificates.
	Signing Signing
	// SignLegacyToken makes the token of a Secret for a service account (authn.SignLegacy). nil:
	// Secrets get no tokens.
	SignLegacyToken func(namespace, secret, account, uid string) (string, error)
	// RootCAFile has the authorities of the gateway's certificate; "": none are published.
	RootCAFile string
	// TerminatedPodGCThreshold is how many terminated pods pod-garbage-collector-controller
	// keeps; 0: all.
	TerminatedPodGCThreshold int
}

// Run runs the selected controllers until ctx ends and all of them have ended.
func Run(ctx context.Context, cfg Config) error {
	env, err := newEnv(cfg)
	if err != nil {
		return err
	}
	defer env.stop()
	if err := env.waitReachable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range All() {
		if c.Run != nil && cfg.Selection.Has(c.Name) {
			wg.Go(func() { env.keep(ctx, c) })
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// keep runs a controller until ctx ends.
func (e *Env) keep(ctx context.Context, c Controller) {
	// Retry ends with ctx.
	_ = loop.Retry(ctx, loop.Backoff{Initial: time.Second, Max: time.Minute}, func(ctx context.Context) error {
		own, end := e.controller(c.Name)
		defer end()
		err := c.Run(ctx, own)
		if ctx.Err() == nil {
			own.Log.Error("the controller ended and is started again", "err", err)
			return fmt.Errorf("run %s: %w", c.Name, err)
		}
		return nil
	})
}
