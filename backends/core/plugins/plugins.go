// Package plugins has the admission plugins of the core server: one table, in the order of
// kube-apiserver. kubernetes.go calls the plugins of k8s.io/kubernetes, and listers.go gives them
// objects from the watch cache. A row without a plugin has the reason.
//
// Runs in: core.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sadmission "k8s.io/apiserver/pkg/admission"

	"k8s.io/kubernetes/plugin/pkg/admission/admit"
	"k8s.io/kubernetes/plugin/pkg/admission/alwayspullimages"
	"k8s.io/kubernetes/plugin/pkg/admission/antiaffinity"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/ctbattest"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/deny"
	"k8s.io/kubernetes/plugin/pkg/admission/eventratelimit"
	"k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration"
	"k8s.io/kubernetes/plugin/pkg/admission/gc"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/autoprovision"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/exists"
	"k8s.io/kubernetes/plugin/pkg/admission/network/defaultingressclass"
	"k8s.io/kubernetes/plugin/pkg/admission/network/denyserviceexternalips"
	"k8s.io/kubernetes/plugin/pkg/admission/nodedeclaredfeatures"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/nodetaint"
	"k8s.io/kubernetes/plugin/pkg/admission/podnodeselector"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	"k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/podtopologylabels"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/admission/quota"
	"portico/resource/rest"
)

// Config is what plugins are made from.
type Config struct {
	Options
	// Resource returns a resource of this process, nil for another one. Required.
	Resource func(group, resource string) *rest.Resource
	// Authorize asks the gateway about an action that it has not authorized: nil, or a
	// StatusError. Required.
	Authorize func(ctx context.Context, a *resource.Action) error
	// Warn receives the warnings of plugins. Required.
	Warn rest.Warn
	// Namespace returns the state of a namespace. Required.
	Namespace admission.LookupNamespace
	// Quotas are the resource quotas of another server; nil: they are a resource of this process.
	Quotas quota.Quotas
	// Engine calls webhooks and policies; nil: there are none.
	Engine *admission.Engine
	// Stop ends what plugins started; nil: it runs until the process ends.
	Stop <-chan struct{}

	// Mapper finds the resources of kinds, of all servers; nil: there is no gateway.
	Mapper meta.RESTMapper

	// files are the configurations of single plugins.
	files configurations
}

// row is one plugin.
type row struct {
	name string
	// on: the plugin is on by default.
	on bool
	// resources that the plugin is called for, as resource.group; nil: all.
	resources []schema.GroupResource
	// register registers a plugin of kube-apiserver, and make returns one of this server. If both are
	// nil, this server does not have the plugin, for the reason missing.
	register func(*k8sadmission.Plugins)
	make     func(cfg *Config) (rest.Admission, error)
	missing  string
	// configured: the plugin has a configuration in --admission-control-config-file.
	configured bool
}

// exists reports whether this server has the plugin.
func (r *row) exists() bool { return r.register != nil || r.make != nil }

// takes reports whether the plugin is called for a write.
func (r *row) takes(a *rest.Attributes) bool {
	return r.resources == nil || slices.Contains(r.resources, a.Kind.GroupResource())
}

// on returns the resources of a row, each in the form resource.group.
func on(resources ...string) []schema.GroupResource {
	out := make([]schema.GroupResource, len(resources))
	for i, r := range resources {
		out[i] = schema.ParseGroupResource(r)
	}
	return out
}

// podSecurityResources are those with a pod or a template of one, and namespaces.
var podSecurityResources = on("pods", "namespaces", "podtemplates", "replicationcontrollers", "replicasets.apps", "deployments.apps", "statefulsets.apps",
	"daemonsets.apps", "jobs.batch", "cronjobs.batch")

// Reasons of missing plugins.
const (
	noGroups = "PodGroups are off by default in Kubernetes 1.37 and not served"
	noDialer = "its client follows redirects and ignores --egress-selector-config-file; use a ValidatingWebhookConfiguration for pods"
)

// all returns the plugins in the order in which they are called (kube-apiserver's
// AllOrderedPlugins). The engine of webhooks and policies stands for four of them.
func all() []row {
	return []row{
		{name: "AlwaysAdmit", register: admit.Register},
		{name: "NamespaceAutoProvision", register: autoprovision.Register},
		{name: admission.PluginLifecycle, on: true, make: func(cfg *Config) (rest.Admission, error) {
			return admission.NamespaceLifecycle(cfg.Namespace), nil
		}},
		{name: "NamespaceExists", register: exists.Register},
		{name: "LimitPodHardAntiAffinityTopology", resources: on("pods"), register: antiaffinity.Register},
		{name: "LimitRanger", on: true, resources: on("pods", "persistentvolumeclaims"), register: limitranger.Register},
		{name: "ServiceAccount", on: true, resources: on("pods"), register: serviceaccount.Register},
		{name: NodeRestriction, register: noderestriction.Register},
		{name: "TaintNodesByCondition", on: true, resources: on("nodes"), register: nodetaint.Register},
		{name: "AlwaysPullImages", resources: on("pods"), register: alwayspullimages.Register},
		{name: "ImagePolicyWebhook", missing: noDialer},
		{name: "PodSecurity", on: true, resources: podSecurityResources, register: podsecurity.Register, configured: true},
		{name: "PodNodeSelector", resources: on("pods"), register: podnodeselector.Register, configured: true},
		{name: "Priority", on: true, resources: on("pods", "priorityclasses.scheduling.k8s.io"), register: priority.Register},
		{name: "DefaultTolerationSeconds", on: true, resources: on("pods"), register: defaulttolerationseconds.Register},
		{name: "PodTolerationRestriction", resources: on("pods"), register: podtolerationrestriction.Register, configured: true},
		{name: "EventRateLimit", resources: on("events"), register: eventratelimit.Register, configured: true},
		{name: "ExtendedResourceToleration", resources: on("pods"), register: extendedresourcetoleration.Register},
		{name: "DefaultStorageClass", on: true, resources: on("persistentvolumeclaims"), make: newDefaultStorageClass},
		{name: "StorageObjectInUseProtection", on: true, resources: on("persistentvolumes", "persistentvolumeclaims"), make: newStorageObjectInUseProtection},
		{name: "PodGroupProtection", on: true, missing: noGroups},
		{name: "OwnerReferencesPermissionEnforcement", register: gc.Register},
		{name: "PersistentVolumeClaimResize", on: true, resources: on("persistentvolumeclaims"), register: resize.Register},
		{name: "RuntimeClass", on: true, resources: on("pods"), register: runtimeclass.Register},
		{name: "CertificateApproval", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), register: approval.Register},
		{name: "CertificateSigning", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), register: signing.Register},
		{name: "ClusterTrustBundleAttest", on: true, resources: on("clustertrustbundles.certificates.k8s.io"), register: ctbattest.Register},
		{name: "CertificateSubjectRestriction", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), register: subjectrestriction.Register},
		{name: "DefaultIngressClass", on: true, resources: on("ingresses.networking.k8s.io"), register: defaultingressclass.Register},
		{name: "DenyServiceExternalIPs", resources: on("services"), register: denyserviceexternalips.Register},
		{name: "PodTopologyLabels", on: true, resources: on("pods"), register: podtopologylabels.Register},
		{name: "NodeDeclaredFeatureValidator", on: true, resources: on("pods"), register: nodedeclaredfeatures.Register},
		{name: "PodResizeValidator", on: true, resources: on("pods"), register: podresize.Register},
		{name: admission.PluginMutatingPolicies, on: true, make: policiesOf(admission.PluginMutatingPolicies), configured: true},
		{name: admission.PluginMutatingWebhooks, on: true, make: webhooksOf(admission.PluginMutatingWebhooks), configured: true},
		{name: admission.PluginValidatingPolicies, on: true, make: policiesOf(admission.PluginValidatingPolicies), configured: true},
		{name: admission.PluginValidatingWebhooks, on: true, make: webhooksOf(admission.PluginValidatingWebhooks), configured: true},
		{name: quota.Name, on: true, make: newResourceQuota, configured: true},
		{name: "AlwaysDeny", register: deny.Register},
	}
}

// webhooksOf is for a plugin of webhooks in the engine of webhooks and policies. It checks the configuration, which the engine
// reads.
func webhooksOf(plugin string) func(*Config) (rest.Admission, error) {
	return func(cfg *Config) (rest.Admission, error) {
		_, err := admission.WebhookCredentials(cfg.files[plugin])
		return nil, err
	}
}

// policiesOf is webhooksOf for a plugin of policies.
func policiesOf(plugin string) func(*Config) (rest.Admission, error) {
	return func(cfg *Config) (rest.Admission, error) {
		_, err := admission.PolicyManifests(plugin, cfg.files[plugin])
		return nil, err
	}
}

// NodeRestriction is the name of the plugin that restricts nodes to their own objects.
const NodeRestriction = noderestriction.PluginName

// DefaultTolerationSeconds is the default of the flags of plugin DefaultTolerationSeconds.
const DefaultTolerationSeconds = 300

// Options are the flags of admission plugins, with kube-apiserver's names.
type Options struct {
	// Enable are plugins to use besides those that are on by default, Disable those not to use.
	Enable, Disable []string
	// ConfigFile is an AdmissionConfiguration, read once; "": none.
	ConfigFile string
	// NotReadyTolerationSeconds and UnreachableTolerationSeconds are how long pods without a
	// toleration of their own stay on such a node, in seconds; nil: 300.
	NotReadyTolerationSeconds, UnreachableTolerationSeconds *int64
}

// Names returns the names of the plugins that this server has, in order.
func Names() []string {
	var names []string
	for _, r := range all() {
		if r.exists() {
			names = append(names, r.name)
		}
	}
	return names
}

// Check returns an error if the flags or the file are wrong, without using anything of a server.
func (o *Options) Check() error {
	_, err := New(Config{
		Options: *o, Mapper: meta.MultiRESTMapper{}, Resource: func(string, string) *rest.Resource { return nil },
	})
	return err
}

// checkNames returns an error if the flags name plugins that do not exist or that this server does
// not have. Plugins that it does not have may be disabled.
func (o *Options) checkNames() error {
	table := all()
	for at, name := range slices.Concat(o.Enable, o.Disable) {
		flag := "--enable-admission-plugins"
		if at >= len(o.Enable) {
			flag = "--disable-admission-plugins"
		}
		i := slices.IndexFunc(table, func(r row) bool { return r.name == name })
		switch {
		case i < 0:
			return fmt.Errorf("%s: there is no plugin %q; the plugins are %s", flag, name, strings.Join(Names(), ", "))
		case at >= len(o.Enable):
		case !table[i].exists():
			return fmt.Errorf("%s: %s cannot be enabled: %s", flag, name, table[i].missing)
		case slices.Contains(o.Disable, name):
			return fmt.Errorf("%s and --disable-admission-plugins both name %s; remove it from one", flag, name)
		}
	}
	return nil
}

// Enables reports whether a plugin is used.
func (o *Options) Enables(name string) bool {
	return slices.ContainsFunc(o.enabled(), func(r row) bool { return r.name == name })
}

// enabled returns the rows of the plugins to use.
func (o *Options) enabled() []row {
	return slices.DeleteFunc(all(), func(r row) bool {
		return !r.exists() || !slices.Contains(o.Enable, r.name) && (!r.on || slices.Contains(o.Disable, r.name))
	})
}

// New returns the enabled plugins as one admission.
func New(cfg Config) (rest.Admission, error) {
	err := cfg.checkNames()
	if err != nil {
		return nil, err
	}
	if cfg.files, err = readConfigurations(cfg.ConfigFile); err != nil {
		return nil, err
	}
	var list chain
	var engine []string
	var group *kubernetes // the last member
	var errs []error
	for _, r := range cfg.enabled() {
		var plugin rest.Admission
		var err error
		switch {
		case r.register == nil:
			group = nil
			plugin, err = r.make(&cfg)
		case group == nil:
			group = &kubernetes{warn: cfg.Warn}
			plugin = group
			fallthrough
		default:
			var p kubernetesPlugin
			p, err = newKubernetesPlugin(&cfg, r)
			group.plugins = append(group.plugins, p)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("admission plugin %s: %w", r.name, err))
		case plugin != nil:
			list = append(list, member{row: r, Admission: plugin, afterEngine: len(engine) > 0})
		case r.register == nil: // the last of them is followed by the engine
			engine = append(engine, r.name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list.with(cfg.Engine, engine), nil
}
