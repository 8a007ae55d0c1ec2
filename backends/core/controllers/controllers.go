package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientrest "k8s.io/client-go/rest"

	"portico/resource/loop"
)

// Controller is a row of All.
type Controller struct {
	// Name is that of the controller in kube-controller-manager.
	Name string
	// Run runs the controller until ctx ends. If it returns an error earlier, it is called
	// again with another Env. nil: package core runs the controller.
	Run func(ctx context.Context, env *Env) error
	// Needs are the built-in resources that it watches, as --runtime-config names them. Without
	// one of them it does not start.
	Needs []string
}

// missing returns a resource that a controller needs and that is not served; "": there is none.
func (c *Controller) missing(serves func(schema.GroupVersionResource) bool) string {
	for _, name := range c.Needs {
		version, resource := path.Split(name)
		gv, err := schema.ParseGroupVersion(strings.TrimSuffix(version, "/"))
		if err != nil || !serves(gv.WithResource(resource)) {
			return name
		}
	}
	return ""
}

// All returns the controllers, in alphabetical order.
func All() []Controller {
	return []Controller{
		{Name: "bootstrap-signer-controller", Run: signClusterInfo, Needs: []string{"v1/configmaps", "v1/secrets"}},
		{Name: "certificatesigningrequest-approving-controller", Run: approveCertificates, Needs: []string{"certificates.k8s.io/v1/certificatesigningrequests"}},
		{Name: "certificatesigningrequest-cleaner-controller", Run: cleanCertificates, Needs: []string{"certificates.k8s.io/v1/certificatesigningrequests"}},
		{Name: "certificatesigningrequest-signing-controller", Run: signCertificates, Needs: []string{"certificates.k8s.io/v1/certificatesigningrequests"}},
		{Name: "disruption-controller", Run: runDisruption, Needs: []string{
			"policy/v1/poddisruptionbudgets", "v1/pods",
			"apps/v1/deployments", "apps/v1/replicasets", "apps/v1/statefulsets", "v1/replicationcontrollers",
		}},
		{Name: "endpoints-controller", Run: runEndpoints, Needs: []string{"v1/endpoints", "v1/pods", "v1/services"}},
		{Name: "endpointslice-controller", Run: runEndpointSlices, Needs: []string{"discovery.k8s.io/v1/endpointslices", "v1/nodes", "v1/pods", "v1/services"}},
		{Name: "endpointslice-mirroring-controller", Run: runMirroring, Needs: []string{"discovery.k8s.io/v1/endpointslices", "v1/endpoints", "v1/services"}},
		{Name: GarbageCollector},
		{Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", Run: publishServingTrust, Needs: []string{"certificates.k8s.io/v1/clustertrustbundles"}},
		{Name: "legacy-serviceaccount-token-cleaner-controller", Run: cleanLegacyTokens, Needs: []string{"v1/configmaps", "v1/pods", "v1/secrets", "v1/serviceaccounts"}},
		{Name: Namespace},
		{Name: "persistentvolume-protection-controller", Run: runPVProtection, Needs: []string{"v1/persistentvolumes"}},
		{Name: "persistentvolumeclaim-protection-controller", Run: runClaimProtection, Needs: []string{"v1/persistentvolumeclaims", "v1/pods"}},
		{Name: "pod-garbage-collector-controller", Run: runPodGC, Needs: []string{"v1/nodes", "v1/pods"}},
		{Name: "podcertificaterequest-cleaner-controller", Run: cleanPodCertificates, Needs: []string{"certificates.k8s.io/v1/podcertificaterequests"}},
		{Name: "resourcequota-controller", Run: resourceQuota, Needs: []string{"v1/resourcequotas"}},
		{Name: RootCAPublisher},
		{Name: "service-cidr-controller", Run: runServiceCIDRs, Needs: []string{"networking.k8s.io/v1/ipaddresses", "networking.k8s.io/v1/servicecidrs"}},
		{Name: ServiceAccount},
		{Name: "serviceaccount-token-controller", Run: fillTokenSecrets, Needs: []string{"v1/secrets", "v1/serviceaccounts"}},
		{Name: migratorName, Run: storageVersionMigrator, Needs: []string{"storagemigration.k8s.io/v1/storageversionmigrations"}},
		{Name: "token-cleaner-controller", Run: cleanBootstrapTokens, Needs: []string{"v1/secrets"}},
		{Name: "ttl-after-finished-controller", Run: ttlAfterFinished, Needs: []string{"batch/v1/jobs"}},
		{Name: "validatingadmissionpolicy-status-controller", Run: policyStatus, Needs: []string{"admissionregistration.k8s.io/v1/validatingadmissionpolicies"}},
	}
}

// The names of the controllers that package core runs.
const (
	GarbageCollector = "garbage-collector-controller"
	Namespace        = "namespace-controller"
	RootCAPublisher  = "root-ca-certificate-publisher-controller"
	ServiceAccount   = "serviceaccount-controller"
)

// Selection is the value of --controllers: * selects all, a name that controller, and -name
// deselects it. Make it with Select.
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
	return slices.Contains(s, "*")
}

// Config is the configuration of Run.
type Config struct {
	// Gateway configures the clients. Required, as is the rest.
	Gateway *clientrest.Config
	// Mapper finds the kinds behind the gateway; NewMapper makes it.
	Mapper meta.RESTMapper
	// Serves reports whether a built-in resource is switched on.
	Serves    func(schema.GroupVersionResource) bool
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
		if c.Run == nil || !cfg.Selection.Has(c.Name) {
			continue
		}
		if off := c.missing(cfg.Serves); off != "" {
			cfg.Log.Info("a controller does not start: a resource that it needs is switched off", "controller", c.Name, "resource", off)
			continue
		}
		wg.Go(func() { env.keep(ctx, c) })
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
