package registration

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"portico/apiservice/backend"
)

// registration has the flags of `portico register` that make up a Backend.
type registration struct {
	name                          string
	urls                          []string
	service                       string
	caFile, serverName            string
	insecure, noClientCertificate bool
	groups, versions              []string
	allGroups, rest, anyBody      bool
	openAPIPath, pathPrefix       string
	headers                       []string
	replaceOther                  bool
	balance, healthPath           string

	// set by complete
	endpoints []backend.Endpoint
	caBundle  []byte
	where     *backend.Service
}

func (r *registration) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&r.urls, "url", nil, "`URL[=WEIGHT]` of an endpoint: https://host:port, unix:///path, or http://host:port with --rest. The weight is the share of requests, 0 to 1000 (default: 1). May be repeated")
	fs.StringVar(&r.service, "service", "", "`namespace/name[:port]` of a Service with the endpoints, in place of --url")
	fs.StringSliceVar(&r.groups, "group", nil, "API `group` to register. May be repeated")
	fs.StringSliceVar(&r.versions, "version", nil, "`version` of --group to register. May be repeated (default: all)")
	fs.BoolVar(&r.allGroups, "all-groups", false, "register every group that the server lists")
	fs.StringVar(&r.caFile, "ca-file", "", "PEM `file` of CAs for the server's certificate (default: those of the gateway's machine)")
	fs.StringVar(&r.serverName, "server-name", "", "`name` in the server's certificate (default: the host of each URL)")
	fs.BoolVar(&r.insecure, "insecure-skip-tls-verify", false, "do not check the server's certificate; requests can be intercepted")
	fs.BoolVar(&r.noClientCertificate, "no-client-certificate", false, "send no client certificate; the server cannot verify the users in headers")
	fs.BoolVar(&r.rest, "rest", false, "make an API of a REST server that has an OpenAPI 3 document")
	fs.StringVar(&r.openAPIPath, "openapi-path", "", "`path` of the OpenAPI document, in JSON (default: /openapi.json)")
	fs.StringVar(&r.pathPrefix, "path-prefix", "", "`path` of the REST server that replaces /apis/GROUP/VERSION (default: its root)")
	fs.BoolVar(&r.anyBody, "allow-any-body", false, "pass forms and encoded bodies; for a REST server that ignores method overrides in bodies (_method)")
	fs.StringSliceVar(&r.headers, "header", nil, "`name` of a request header that the REST server gets beside those of HTTP itself, such as X-Api-Key. May be repeated")
	fs.BoolVar(&r.replaceOther, "replace", false, "take groups from a Backend of a lower priority, or of the same priority without --replace")
	fs.StringVar(&r.balance, "balance", "", "load balancing `policy`: LeastRequest, RoundRobin or ConsistentHash (by user) (default: LeastRequest)")
	fs.StringVar(&r.healthPath, "health-path", "", "`path` of the health check of each endpoint; 2xx is healthy (default: its discovery)")
}

// complete reads files and rejects flags that contradict each other. The server validates the
// values of fields.
func (r *registration) complete() (err error) {
	if err := r.contradiction(); err != nil {
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
	if r.caBundle, err = os.ReadFile(r.caFile); err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	if _, err := certutil.ParseCertsPEM(r.caBundle); err != nil {
		return fmt.Errorf("--ca-file: read %s: %w", r.caFile, err)
	}
	return nil
}

func (r *registration) contradiction() error {
	switch {
	case len(r.urls) == 0 && r.service == "":
		return errors.New("--url or --service is missing, as in --url=https://host:port or --service=namespace/name")
	case len(r.urls) > 0 && r.service != "":
		return errors.New("--url and --service exclude each other")
	case r.insecure && (r.caFile != "" || r.serverName != ""):
		return errors.New("--insecure-skip-tls-verify excludes --ca-file and --server-name")
	case r.rest && (len(r.groups) != 1 || len(r.versions) != 1 || r.allGroups):
		return errors.New("--rest needs one --group and one --version")
	case !r.rest && (r.openAPIPath != "" || r.pathPrefix != "" || r.anyBody || len(r.headers) > 0):
		return errors.New("--openapi-path, --path-prefix, --header and --allow-any-body need --rest")
	case r.replaceOther && r.rest:
		return errors.New("--replace does not apply with --rest; unregister the other server of the version")
	case r.allGroups && (len(r.groups) > 0 || len(r.versions) > 0):
		return errors.New("--all-groups excludes --group and --version")
	case !r.allGroups && len(r.groups) == 0:
		return errors.New("--group or --all-groups is missing")
	case len(r.versions) > 0 && len(r.groups) > 1:
		return errors.New("--version needs exactly one --group")
	}
	return nil
}

// backend returns the Backend that is applied. It has the fields that flags set, no defaults.
func (r *registration) backend() *backend.Backend {
	b := &backend.Backend{TypeMeta: metav1.TypeMeta{APIVersion: backend.GroupVersion().String(), Kind: "Backend"}}
	b.Name = r.name
	b.Spec = backend.Spec{Endpoints: r.endpoints, Service: r.where, TLS: r.tls(), Balance: backend.Balance(r.balance)}
	if r.healthPath != "" {
		b.Spec.HealthCheck = &backend.HealthCheck{Path: r.healthPath}
	}
	if r.rest {
		b.Spec.REST = &backend.REST{
			Group: r.groups[0], Version: r.versions[0], OpenAPIPath: r.openAPIPath, PathPrefix: r.pathPrefix, AllowAnyBody: r.anyBody, Headers: r.headers,
		}
	} else {
		b.Spec.AutoRegister = r.autoRegister()
	}
	return b
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

func (r *registration) autoRegister() *backend.AutoRegister {
	out := &backend.AutoRegister{Groups: r.groups}
	switch {
	case r.allGroups:
		out.Groups = []string{backend.AllGroups}
	case len(r.versions) > 0:
		out.Groups = nil
		for _, v := range r.versions {
			out.Groups = append(out.Groups, r.groups[0]+"/"+v)
		}
	}
	if r.replaceOther {
		out.OnConflict = backend.ReplaceOther
	}
	return out
}

// parseService reads namespace/name[:port].
func parseService(s string) (*backend.Service, error) {
	where, port, hasPort := strings.Cut(s, ":")
	namespace, name, ok := strings.Cut(where, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--service %q: must have the form namespace/name or namespace/name:port", s)
	}
	out := &backend.Service{Namespace: namespace, Name: name}
	if hasPort {
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--service %q: %q is not a port", s, port)
		}
		number := int32(n)
		out.Port = &number
	}
	return out, nil
}

// parseEndpoint parses URL[=WEIGHT]. The URL of a host has no "="; the path of a socket may,
// where a weight must be a number.
func parseEndpoint(text string) (backend.Endpoint, error) {
	i := strings.LastIndexByte(text, '=')
	number := i >= 0 && i < len(text)-1 && strings.Trim(text[i+1:], "0123456789") == ""
	switch {
	case i < 0 || !number && strings.HasPrefix(text, backend.Unix+":"):
		return backend.Endpoint{URL: text}, nil
	case i == 0:
		return backend.Endpoint{}, errors.New("--url: the URL is missing, as in --url=https://10.0.0.1:8443=90")
	}
	weight, err := strconv.ParseInt(text[i+1:], 10, 32)
	if err != nil || !number {
		return backend.Endpoint{}, fmt.Errorf("--url %q: the weight %q must be a number from 0 to 1000", text, text[i+1:])
	}
	w := int32(weight)
	return backend.Endpoint{URL: text[:i], Weight: &w}, nil
}
