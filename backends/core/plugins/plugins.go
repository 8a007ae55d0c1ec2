// Package plugins is the admission plugins of the core server, by the names and in the order of
// kube-apiserver's. Each is a file of its own and a row of one table; rows of plugins that this
// server does not have say why.
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
	// make returns the plugin; nil: this server does not have it, for the reason missing.
	make    func(cfg *Config) (rest.Admission, error)
	missing string
	// configured: the plugin has a configuration in --admission-control-config-file.
	configured bool
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
	noEffect  = "it is deprecated and has no effect beyond that of its name"
	noGroups  = "PodGroups are off by default in Kubernetes 1.37 and not served"
	noWebhook = "a ValidatingWebhookConfiguration for pods does the same"
)

// all returns the plugins in the order in which they are called (kube-apiserver's
// AllOrderedPlugins). The engine of webhooks and policies stands for four of them.
func all() []row {
	return []row{
		{name: "AlwaysAdmit", missing: noEffect},
		{name: "NamespaceAutoProvision", make: newNamespaceAutoProvision},
		{name: admission.PluginLifecycle, on: true, make: func(cfg *Config) (rest.Admission, error) {
			return admission.NamespaceLifecycle(cfg.Namespace), nil
		}},
		{name: "NamespaceExists", make: newNamespaceExists},
		{name: "LimitPodHardAntiAffinityTopology", resources: on("pods"), make: newLimitPodHardAntiAffinityTopology},
		{name: "LimitRanger", on: true, resources: on("pods", "persistentvolumeclaims"), make: newLimitRanger},
		{name: "ServiceAccount", on: true, resources: on("pods"), make: newServiceAccount},
		{name: NodeRestriction, make: newNodeRestriction},
		{name: "TaintNodesByCondition", on: true, resources: on("nodes"), make: newTaintNodesByCondition},
		{name: "AlwaysPullImages", resources: on("pods"), make: newAlwaysPullImages},
		{name: "ImagePolicyWebhook", missing: noWebhook},
		{name: "PodSecurity", on: true, resources: podSecurityResources, make: newPodSecurity, configured: true},
		{name: "PodNodeSelector", resources: on("pods"), make: newPodNodeSelector, configured: true},
		{name: "Priority", on: true, resources: on("pods", "priorityclasses.scheduling.k8s.io"), make: newPriority},
		{name: "DefaultTolerationSeconds", on: true, resources: on("pods"), make: newDefaultTolerationSeconds},
		{name: "PodTolerationRestriction", resources: on("pods"), make: newPodTolerationRestriction, configured: true},
		{name: "EventRateLimit", resources: on("events", "events.events.k8s.io"), make: newEventRateLimit, configured: true},
		{name: "ExtendedResourceToleration", resources: on("pods"), make: newExtendedResourceToleration},
		{name: "DefaultStorageClass", on: true, resources: on("persistentvolumeclaims"), make: newDefaultStorageClass},
		{name: "StorageObjectInUseProtection", on: true, resources: on("persistentvolumes", "persistentvolumeclaims"), make: newStorageObjectInUseProtection},
		{name: "PodGroupProtection", on: true, missing: noGroups},
		{name: "OwnerReferencesPermissionEnforcement", make: newOwnerReferencesPermissionEnforcement},
		{name: "PersistentVolumeClaimResize", on: true, resources: on("persistentvolumeclaims"), make: newPersistentVolumeClaimResize},
		{name: "RuntimeClass", on: true, resources: on("pods"), make: newRuntimeClass},
		{name: "CertificateApproval", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), make: newCertificateApproval},
		{name: "CertificateSigning", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), make: newCertificateSigning},
		{name: "ClusterTrustBundleAttest", on: true, resources: on("clustertrustbundles.certificates.k8s.io"), make: newClusterTrustBundleAttest},
		{name: "CertificateSubjectRestriction", on: true, resources: on("certificatesigningrequests.certificates.k8s.io"), make: newCertificateSubjectRestriction},
		{name: "DefaultIngressClass", on: true, resources: on("ingresses.networking.k8s.io"), make: newDefaultIngressClass},
		{name: "DenyServiceExternalIPs", resources: on("services"), make: newDenyServiceExternalIPs},
		{name: "PodTopologyLabels", on: true, resources: on("pods"), make: newPodTopologyLabels},
		{name: "NodeDeclaredFeatureValidator", on: true, resources: on("pods"), make: newNodeDeclaredFeatureValidator},
		{name: "PodResizeValidator", on: true, resources: on("pods"), make: newPodResizeValidator},
		{name: admission.PluginMutatingPolicies, on: true, make: policiesOf(admission.PluginMutatingPolicies), configured: true},
		{name: admission.PluginMutatingWebhooks, on: true, make: webhooksOf(admission.PluginMutatingWebhooks), configured: true},
		{name: admission.PluginValidatingPolicies, on: true, make: policiesOf(admission.PluginValidatingPolicies), configured: true},
		{name: admission.PluginValidatingWebhooks, on: true, make: webhooksOf(admission.PluginValidatingWebhooks), configured: true},
		{name: quota.Name, on: true, make: newResourceQuota, configured: true},
		{name: "AlwaysDeny", missing: noEffect},
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
		if r.make != nil {
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
		case table[i].make == nil:
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
		return r.make == nil || !slices.Contains(o.Enable, r.name) && (!r.on || slices.Contains(o.Disable, r.name))
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
	var errs []error
	for _, r := range cfg.enabled() {
		plugin, err := r.make(&cfg)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("admission plugin %s: %w", r.name, err))
		case plugin == nil: // the last of them is followed by the engine
			engine = append(engine, r.name)
		default:
			list = append(list, member{row: r, Admission: plugin, afterEngine: len(engine) > 0})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list.with(cfg.Engine, engine), nil
}
