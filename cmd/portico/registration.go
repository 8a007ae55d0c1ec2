package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/internal/pki"
)

// Priorities of what is registered if nothing else is said: below the built-in
// groups.
const (
	defaultGroupPriority   = 1000
	defaultVersionPriority = 15
)

// Flags of how groups are taken.
const (
	flagGroupPriority   = "group-priority"
	flagVersionPriority = "version-priority"
	flagReplace         = "replace"
)

// registration is how a server shall be registered: the flags of
// `portico register`, and the objects they ask for.
type registration struct {
	name                           string
	urls                           []string
	service                        string
	caFile, serverName             string
	insecure, noClientCertificate  bool
	groups, versions               []string
	allGroups, rest, anyBody       bool
	openAPIPath, pathPrefix        string
	groupPriority, versionPriority int32
	replaceOther                   bool
	policy                         policyFlags

	// read from the flags by complete
	endpoints []backend.Endpoint
	caBundle  []byte
	where     *backend.Service
}

func (r *registration) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&r.urls, "url", nil, "`URL[=WEIGHT]` of an endpoint: https://host:port, unix:///path, or http://host:port with --rest. May be repeated: the endpoints answer alike, each its share of the requests by its weight, 0 to 1000 (default: 1)")
	fs.StringVar(&r.service, "service", "", "`namespace/name[:port]` of a Service whose endpoints these are, in place of --url")
	fs.StringSliceVar(&r.groups, "group", nil, "API `group` to take. May be repeated")
	fs.StringSliceVar(&r.versions, "version", nil, "`version` of --group to take. May be repeated (default: all)")
	fs.BoolVar(&r.allGroups, "all-groups", false, "take every group that the server says it serves")
	fs.StringVar(&r.caFile, "ca-file", "", "PEM `file` of the authorities that the server's certificate is checked against (default: those of the gateway's machine)")
	fs.StringVar(&r.serverName, "server-name", "", "`name` that the server's certificate has (default: the host of each URL)")
	fs.BoolVar(&r.insecure, "insecure-skip-tls-verify", false, "trust whoever answers at the URLs; users' requests may then be read by others")
	fs.BoolVar(&r.noClientCertificate, "no-client-certificate", false, "show no certificate to the server; it cannot know then that users are who the gateway says they are")
	fs.BoolVar(&r.rest, "rest", false, "make an API of a REST server that has an OpenAPI 3 document")
	fs.StringVar(&r.openAPIPath, "openapi-path", "", "`path` of that document, which must be JSON, not YAML (default: /openapi.json)")
	fs.StringVar(&r.pathPrefix, "path-prefix", "", "`path` on the REST server that stands for /apis/GROUP/VERSION (default: its root)")
	fs.BoolVar(&r.anyBody, "allow-any-body", false, "pass forms and encoded bodies to the REST server too; for one that takes no other method out of a body (_method)")
	fs.Int32Var(&r.groupPriority, flagGroupPriority, defaultGroupPriority, "`number` that orders groups in discovery, highest first")
	fs.Int32Var(&r.versionPriority, flagVersionPriority, defaultVersionPriority, "`number` that orders the versions of a group, highest first")
	fs.BoolVar(&r.replaceOther, flagReplace, false, "take groups from another backend of a lower priority, or of the same that does not replace")
	r.policy.add(fs)
}

// complete reads files and finds out what contradicts itself. What a URL or a
// group must look like is the server's to say.
func (r *registration) complete() (err error) {
	if err := cmp.Or(r.contradiction(), r.outOfBounds()); err != nil {
		return err
	}
	for _, u := range r.urls {
		e, err := parseEndpoint(u)
		if err != nil {
			return err
		}
		r.endpoints = append(r.endpoints, e)
	}
	if r.service != "" {
		if r.where, err = parseService(r.service); err != nil {
			return err
		}
	}
	if r.caFile == "" {
		return nil
	}
	if _, err := pki.Read(r.caFile); err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	if r.caBundle, err = os.ReadFile(r.caFile); err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	return nil
}

func (r *registration) contradiction() error {
	switch {
	case len(r.urls) == 0 && r.service == "":
		return errors.New("say where the server is: --url=https://host:port for each endpoint, or --service=namespace/name")
	case len(r.urls) > 0 && r.service != "":
		return errors.New("--url and --service both say where the server is; give one of them")
	case r.insecure && (r.caFile != "" || r.serverName != ""):
		return errors.New("--insecure-skip-tls-verify checks no certificate; leave it out, or --ca-file and --server-name")
	case r.rest && (len(r.groups) != 1 || len(r.versions) != 1 || r.allGroups):
		return errors.New("--rest makes one group and version of the server; give one --group and one --version")
	case !r.rest && (r.openAPIPath != "" || r.pathPrefix != "" || r.anyBody):
		return errors.New("--openapi-path, --path-prefix and --allow-any-body are for --rest")
	case r.rest && (r.policy.says(flagGroupPriority) || r.policy.says(flagVersionPriority)):
		return errors.New("--group-priority and --version-priority do nothing for a REST server; leave them out with --rest")
	case r.replaceOther && (r.rest || len(r.versions) > 0):
		return errors.New("--replace is for groups that are taken whole; leave it out with --rest and --version, and unregister what answers for the version")
	case r.allGroups && (len(r.groups) > 0 || len(r.versions) > 0):
		return errors.New("--all-groups takes every group; leave it out, or --group and --version")
	case !r.allGroups && len(r.groups) == 0:
		return errors.New("say which groups to take: --group=G, with --version=V for one version of it, or --all-groups")
	case len(r.versions) > 0 && len(r.groups) > 1:
		return errors.New("--version is of one --group; register the others by themselves, or leave it out")
	}
	return nil
}

// Bounds of priorities, those of APIServices.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

// outOfBounds is the error of a priority that no APIService may have. It is found
// before anything is written: the Backend comes first, and may have none.
func (r *registration) outOfBounds() error {
	for _, p := range []struct {
		flag       string
		have, most int32
	}{{flagGroupPriority, r.groupPriority, maxGroupPriority}, {flagVersionPriority, r.versionPriority, maxVersionPriority}} {
		if r.policy.says(p.flag) && (p.have < 1 || p.have > p.most) {
			return fmt.Errorf("--%s=%d: it must be between 1 and %d", p.flag, p.have, p.most)
		}
	}
	return nil
}

// backend returns old with the endpoints, trust and groups that are asked for.
// Its policy, how it takes groups and the weights of endpoints that stay are kept,
// as far as no flag says otherwise.
func (r *registration) backend(old *backend.Backend) *backend.Backend {
	b := *old
	b.TypeMeta = metav1.TypeMeta{APIVersion: backend.GroupVersion().String(), Kind: "Backend"}
	b.Name = r.name
	weights := map[string]*int32{}
	for _, e := range old.Spec.Endpoints {
		weights[e.URL] = e.Weight
	}
	b.Spec.Endpoints = nil
	for _, e := range r.endpoints {
		if e.Weight == nil {
			e.Weight = weights[e.URL]
		}
		b.Spec.Endpoints = append(b.Spec.Endpoints, e)
	}
	r.policy.apply(&b.Spec)
	b.Spec.Service = r.where
	b.Spec.TLS = r.tls()
	b.Spec.AutoRegister, b.Spec.REST = nil, nil
	switch {
	case r.rest:
		b.Spec.REST = &backend.REST{Group: r.groups[0], Version: r.versions[0], OpenAPIPath: r.openAPIPath, PathPrefix: r.pathPrefix, AllowAnyBody: r.anyBody}
	case len(r.versions) == 0:
		b.Spec.AutoRegister = r.autoRegister(valueOf(old.Spec.AutoRegister))
	}
	return &b
}

func (r *registration) tls() *backend.TLS {
	t := backend.TLS{CABundle: r.caBundle, ServerName: r.serverName, InsecureSkipVerify: r.insecure}
	if r.noClientCertificate {
		t.ClientCertificate = backend.NoneShown
	}
	if t.CABundle == nil && t.ServerName == "" && !t.InsecureSkipVerify && t.ClientCertificate == "" {
		return nil
	}
	return &t
}

// autoRegister returns old with the groups that are asked for.
func (r *registration) autoRegister(old backend.AutoRegister) *backend.AutoRegister {
	old.Groups = r.groups
	if r.allGroups {
		old.Groups = []string{"*"}
	}
	group, version := valueOf(old.GroupPriorityMinimum), valueOf(old.VersionPriority)
	r.prioritize(&group, &version)
	old.GroupPriorityMinimum, old.VersionPriority = &group, &version
	switch {
	case r.replaceOther:
		old.OnConflict = backend.ReplaceOther
	case r.policy.says(flagReplace):
		old.OnConflict = "" // keep, the default
	}
	return &old
}

// prioritize changes the priorities that a flag says, or that there are none of
// yet.
func (r *registration) prioritize(group, version *int32) {
	if *group == 0 || r.policy.says(flagGroupPriority) {
		*group = cmp.Or(r.groupPriority, defaultGroupPriority)
	}
	if *version == 0 || r.policy.says(flagVersionPriority) {
		*version = cmp.Or(r.versionPriority, defaultVersionPriority)
	}
}

// apiServices returns those that lead to the Backend for versions that were
// asked for by name.
func (r *registration) apiServices() (all []*apireg.APIService) {
	if r.rest {
		return nil
	}
	for _, v := range r.versions {
		group := r.groups[0]
		want := &apireg.APIService{
			TypeMeta: metav1.TypeMeta{APIVersion: apireg.SchemeGroupVersion.String(), Kind: "APIService"},
			ObjectMeta: metav1.ObjectMeta{
				Name: apiservice.Name(group, v), Annotations: map[string]string{apiservice.BackendAnnotation: r.name},
			},
			Spec: apireg.APIServiceSpec{Group: group, Version: v},
		}
		r.prioritize(&want.Spec.GroupPriorityMinimum, &want.Spec.VersionPriority)
		all = append(all, want)
	}
	return all
}

// parseService reads namespace/name[:port].
func parseService(s string) (*backend.Service, error) {
	where, port, hasPort := strings.Cut(s, ":")
	namespace, name, ok := strings.Cut(where, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--service %q: it must have the form namespace/name or namespace/name:port", s)
	}
	out := &backend.Service{Namespace: namespace, Name: name}
	if hasPort {
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--service %q: %q is no port", s, port)
		}
		number := int32(n)
		out.Port = &number
	}
	return out, nil
}

// withoutEmpty drops what nobody would write into a file by hand: empty objects
// and nulls.
func withoutEmpty(object any) any {
	data, err := json.Marshal(object)
	if err != nil {
		return object
	}
	var fields map[string]any
	if json.Unmarshal(data, &fields) != nil {
		return object
	}
	dropEmpty(fields)
	return fields
}

func dropEmpty(fields map[string]any) {
	for name, value := range fields {
		if nested, ok := value.(map[string]any); ok {
			dropEmpty(nested)
			if len(nested) == 0 {
				delete(fields, name)
			}
		}
		if value == nil {
			delete(fields, name)
		}
	}
}
