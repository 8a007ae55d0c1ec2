package encryption

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"

	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
	"portico/internal/testing/kmstest"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/serve/metrics"
	"portico/resource/watchcache"
)

// TestMain runs more tests in parallel than there are processors: they wait for time-outs of upstream.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	controller.EncryptionConfigFileChangePollDuration = 20 * time.Millisecond
	os.Exit(m.Run())
}

// secret is a key of 32 bytes.
func secret(name string) string {
	return base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", name)))
}

// keys is a provider with keys of its own.
func keys(provider string, names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf("{name: %s, secret: %s}", name, secret(name)))
	}
	return fmt.Sprintf("{%s: {keys: [%s]}}", provider, strings.Join(list, ", "))
}

func kms(p *kmstest.Plugin) string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: vault, endpoint: %q, timeout: 1s}}", p.Endpoint())
}

// rule is an entry of a configuration: resources, and the providers for them.
func rule(resources string, providers ...string) string {
	return fmt.Sprintf("- {resources: [%s], providers: [%s]}\n", resources, strings.Join(providers, ", "))
}

func configuration(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

// write replaces a file at once.
func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// open opens a configuration for the length of the test.
func open(t testing.TB, reload bool, rules ...string) (e *Encryption, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "encryption.yaml")
	write(t, file, configuration(rules...))
	e, err := Open(Config{File: file, Reload: reload, Host: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, file
}

// The resources of the tests.
var (
	secrets    = &resource.Info{Versions: []string{"v1"}, Resource: "secrets", Kind: "Secret", Namespaced: true}
	configMaps = &resource.Info{Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	nodes      = &resource.Info{Versions: []string{"v1"}, Resource: "nodes", Kind: "Node", Path: "minions"}
	deployment = &resource.Info{Group: "apps", Versions: []string{"v1"}, Resource: "deployments", Kind: "Deployment", Namespaced: true}
	widgets    = &resource.Info{Group: "example.com", Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget", Namespaced: true, Path: "example.com/widgets"}
)

// client returns a client of an etcd.
func client(t *testing.T, endpoint string, e *Encryption) *etcd.Client {
	t.Helper()
	cfg := etcd.Config{Endpoints: []string{endpoint}, Logger: slog.New(slog.DiscardHandler)}
	e.Apply(&cfg)
	c, err := etcd.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func object(t *testing.T, info *resource.Info, name string) *resource.Object {
	t.Helper()
	version := strings.TrimPrefix(info.Group+"/v1", "/")
	o, err := resource.Parse([]byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"a","name":%q},"data":"password"}`, version, info.Kind, name)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func create(t *testing.T, c *etcd.Client, info *resource.Info, name string) {
	t.Helper()
	o := object(t, info, name)
	if _, err := c.Store(info).Create(t.Context(), resource.Key{Namespace: "a", Name: name}, o, 0); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *etcd.Client, info *resource.Info, name string) error {
	t.Helper()
	o, err := c.Store(info).Get(t.Context(), resource.Key{Namespace: "a", Name: name}, resource.At{})
	if err == nil && !strings.Contains(string(o.Data), "password") {
		t.Errorf("%s %s: %s", info.Resource, name, o.Data)
	}
	return err
}

// raw returns the value in etcd of the only object of a resource.
func raw(t *testing.T, c *etcd.Client, info *resource.Info, name string) string {
	t.Helper()
	value := ""
	err := c.Scan(t.Context(), info.ObjectPath(resource.Key{Namespace: "a", Name: name}), func(_ string, v []byte) error {
		value = string(v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Every provider writes what kube-apiserver's prefix names, which does not have the object in
// plain text, and reads it; without the configuration it cannot be read.
func TestProviders(t *testing.T) {
	t.Parallel()
	plugin := kmstest.Start(t)
	for name, tt := range map[string]struct{ provider, prefix string }{
		"aescbc":    {keys("aescbc", "one"), "k8s:enc:aescbc:v1:one:"},
		"aesgcm":    {keys("aesgcm", "one"), "k8s:enc:aesgcm:v1:one:"},
		"secretbox": {keys("secretbox", "one"), "k8s:enc:secretbox:v1:one:"},
		"kms":       {kms(plugin), "k8s:enc:kms:v2:vault:"},
		"identity":  {"{identity: {}}", `{"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := etcdtest.Start(t)
			e, _ := open(t, false, rule("secrets", tt.provider))
			c, without := client(t, server.DirectEndpoint(), e), client(t, server.DirectEndpoint(), nil)
			create(t, c, secrets, "x")
			create(t, c, configMaps, "x")
			value := raw(t, c, secrets, "x")
			encrypted := name != "identity"
			if !strings.HasPrefix(value, tt.prefix) || encrypted == strings.Contains(value, "password") {
				t.Errorf("stored %q", value)
			}
			if value := raw(t, c, configMaps, "x"); !strings.HasPrefix(value, "{") {
				t.Errorf("a resource without a rule: stored %q", value)
			}
			if err := get(t, c, secrets, "x"); err != nil {
				t.Error(err)
			}
			if err := get(t, without, secrets, "x"); encrypted && (err == nil || !strings.Contains(err.Error(), "--encryption-provider-config")) || !encrypted && err != nil {
				t.Errorf("without a configuration: %v", err)
			}
		})
	}
}

// A value that the configuration cannot decrypt is refused with an error that names what is missing.
func TestOtherConfigurations(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	e, _ := open(t, false, rule("secrets", keys("aesgcm", "one")))
	c := client(t, server.DirectEndpoint(), e)
	create(t, c, secrets, "x")
	create(t, c, configMaps, "x")
	const lacks = `it is encrypted by provider aesgcm (v1) with key "one", which --encryption-provider-config lacks or has with another secret: `
	for name, tt := range map[string]struct {
		rule, want string
		of         *resource.Info
	}{
		"another secret":   {rule("secrets", "{aesgcm: {keys: [{name: one, secret: "+secret("other")+"}]}}"), lacks, secrets},
		"another key":      {rule("secrets", keys("aesgcm", "two")), lacks, secrets},
		"another provider": {rule("secrets", keys("aescbc", "one")), lacks, secrets},
		"no provider":      {rule("nodes", keys("aesgcm", "one")), lacks, secrets},
		"no identity":      {rule("configmaps", keys("aesgcm", "one")), "it is not encrypted, and --encryption-provider-config has no provider identity for configmaps: ", configMaps},
	} {
		other, _ := open(t, false, tt.rule)
		if err := get(t, client(t, server.DirectEndpoint(), other), tt.of, "x"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The most specific rule of a resource holds: its own, that of its group, that of everything.
func TestResources(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	e, _ := open(t, false, rule("nodes, widgets.example.com", keys("aescbc", "own")), rule("'*.apps'", keys("aescbc", "group")), rule("'*.*'", keys("aescbc", "all")))
	c := client(t, server.DirectEndpoint(), e)
	for _, tt := range []struct {
		info *resource.Info
		key  string
	}{{nodes, "own"}, {widgets, "own"}, {deployment, "group"}, {secrets, "all"}} {
		create(t, c, tt.info, "x")
		path := tt.info.ObjectPath(resource.Key{Namespace: "a", Name: "x"})
		if value := raw(t, c, tt.info, "x"); !strings.HasPrefix(value, "k8s:enc:aescbc:v1:"+tt.key+":") {
			t.Errorf("%s: stored %.40q, want key %s", path, value, tt.key)
		}
		if err := get(t, c, tt.info, "x"); err != nil {
			t.Error(err)
		}
	}
	ranges := &resource.Info{Versions: []string{"v1"}, Kind: "RangeAllocation", Path: "ranges"}
	create(t, c, ranges, "x")
	if value := raw(t, c, ranges, "x"); !strings.HasPrefix(value, "{") || get(t, c, ranges, "x") != nil {
		t.Errorf("ranges, which kube-apiserver does not encrypt: stored %.40q", value)
	}
	documents := c.Documents("gateway")
	if _, err := documents.Write(t.Context(), "x", []byte("routes"), 0); err != nil {
		t.Fatal(err)
	}
	if all, err := documents.Read(t.Context()); err != nil || string(all["x"].Data) != "routes" {
		t.Errorf("documents: %v, %v", all, err)
	}
	if all, err := client(t, server.DirectEndpoint(), nil).Documents("gateway").Read(t.Context()); err != nil || all["x"].Data != nil {
		t.Errorf("documents without the configuration: %v, %v", all, err)
	}
}

// A configuration that cannot work is refused with upstream's message, which names the field.
func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":               "is empty",
		"kind: Nonsense": `Object 'apiVersion' is missing`,
		configuration("- {unknown: x, resources: [secrets]}\n"):                                                     `unknown field "resources[0].unknown"`,
		configuration(rule("secrets")):                                                                              "resources[0].providers: Required value",
		configuration(rule("", keys("aescbc", "one"))):                                                              "resources[0].resources: Required value",
		configuration(rule("secrets", "{aescbc: {keys: [{name: one, secret: c2hvcnQ=}]}}")):                         "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length",
		configuration(rule("secrets", "{aesgcm: {keys: []}}")):                                                      "resources[0].providers[0].aesgcm.keys: Required value",
		configuration(rule("secrets", "{secretbox: {keys: [{name: '', secret: "+secret("x")+"}]}}")):                "resources[0].providers[0].secretbox.keys[0].name: Required value",
		configuration(rule("secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'http://x'}}")):                    "resources[0].providers[0].kms.endpoint: Invalid value: \"http://x\": unsupported scheme",
		configuration(rule("secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', cachesize: 5}}")):     "resources[0].providers[0].kms.cachesize: Invalid value: 5: cachesize is not supported in v2",
		configuration(rule("secrets", "{kms: {apiVersion: v1, name: a, endpoint: 'unix:///x'}}")):                   "KMSv1 is deprecated",
		configuration(rule("secrets", keys("aescbc", "one"), "{identity: {}, secretbox: {}}")):                      "resources[0].providers[1]: Invalid value",
		configuration(rule("'*.*'", keys("aescbc", "one")), rule("secrets", keys("aescbc", "one"))):                 `resource "secrets" is masked by earlier rule "*.*"`,
		configuration(rule("'*.*', secrets", keys("aescbc", "one"))):                                                "resources[0].resources",
		configuration(rule("'a.*'", keys("aescbc", "one"))):                                                         "resources[0].resources",
		configuration(rule("events.k8s.io", "{aescbc: {keys: [{name: a, secret: '"+strings.Repeat("%", 8)+"'}]}}")): "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
		configuration(rule("secrets", "{kms: {apiVersion: v3, name: a, endpoint: 'unix:///x'}}")):                   "resources[0].providers[0].kms.apiVersion: Invalid value: \"v3\": unsupported apiVersion",
		configuration(rule("secrets", "{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'}}")):               "resources[0].providers[0].kms.name",
		configuration(rule("secrets", "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: -1s}}")):     "resources[0].providers[0].kms.timeout",
		configuration(rule("secrets", kmsAt("unix:///x"), kmsAt("unix:///y"))):                                      "resources[0].providers[1].kms.name: Invalid value: \"vault\": duplicate KMS provider name",
	} {
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		write(t, file, text)
		cfg := Config{File: file}
		e, err := Open(cfg)
		e.Close()
		if checked := cfg.Check(); fmt.Sprint(checked) != fmt.Sprint(err) {
			t.Errorf("checked: %v, opened: %v", checked, err)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "--encryption-provider-config: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	if _, err := Open(Config{File: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}

func kmsAt(endpoint string) string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: vault, endpoint: '%s'}}", endpoint)
}

// health returns the error of the check of KMS plugins.
func health(t *testing.T, e *Encryption) (err error) {
	t.Helper()
	found := false
	e.AddChecks(func(name string, run func(*http.Request) error) {
		if name != CheckName {
			t.Errorf("check %s", name)
		}
		found = true
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz/"+name, nil)
		err = run(r)
	})
	if !found {
		t.Error("there is no check")
	}
	return err
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	for err := holds(); err != nil; err = holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A file that changes is read again; one that is wrong is not used, and counted.
func TestReload(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	e, file := open(t, true, rule("secrets", keys("aescbc", "one")))
	var started func() error
	e.AddPostStartCheck(func(name string, run func() error) {
		if name == "poststarthook/start-encryption-provider-config-automatic-reload" {
			started = run
		}
	})
	if started() == nil {
		t.Error("the file is followed before Run")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	eventually(t, "the file is followed", started)
	c := client(t, server.DirectEndpoint(), e)
	create(t, c, secrets, "old")
	if err := health(t, e); err != nil {
		t.Error(err)
	}
	write(t, file, configuration(rule("secrets", "{aescbc: {}}")))
	eventually(t, "a wrong file is counted", counted(e.cfg.Host, `automatic_reloads_total{`, `status="failure"`))
	write(t, file, configuration(rule("secrets", keys("secretbox", "two"), keys("aescbc", "one"))))
	eventually(t, "the file is used", counted(e.cfg.Host, `automatic_reloads_total{`, `status="success"`))
	create(t, c, secrets, "new")
	if value := raw(t, c, secrets, "new"); !strings.HasPrefix(value, "k8s:enc:secretbox:v1:two:") {
		t.Errorf("after the change stored %.30q", value)
	}
	if err := get(t, c, secrets, "old"); err != nil {
		t.Error(err)
	}
	var results []etcd.Rewritten
	rewrite := func() {
		results = nil
		if err := c.Rewrite(t.Context(), "secrets/", func(r etcd.Rewritten, err error) error { results = append(results, r); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if rewrite(); len(results) != 2 || results[0] != etcd.Current || results[1] != etcd.Again {
		t.Errorf("rewritten: %v", results)
	}
	if value := raw(t, c, secrets, "old"); !strings.HasPrefix(value, "k8s:enc:secretbox:v1:two:") {
		t.Errorf("rewritten: stored %.30q", value)
	}
	if rewrite(); results[1] != etcd.Current {
		t.Errorf("rewritten again: %v", results)
	}
	if err := get(t, c, secrets, "old"); err != nil {
		t.Error(err)
	}
}

// counted checks that there is a metric of an instance.
func counted(instance string, parts ...string) func() error {
	return func() error {
		cfg := Config{File: "x"}
		all, err := metrics.Shared(cfg.Metrics()...).Gather()
		if err != nil {
			return err
		}
		for _, family := range all {
			for _, m := range family.GetMetric() {
				line := family.GetName() + "{"
				for _, l := range m.GetLabel() {
					line += fmt.Sprintf("%s=%q,", l.GetName(), l.GetValue())
				}
				has := true
				for _, part := range parts {
					has = has && strings.Contains(line, part)
				}
				if has {
					return nil
				}
			}
		}
		return fmt.Errorf("no %v", parts)
	}
}

// cached returns a cache of secrets and config maps over one feed.
func cached(t *testing.T, c *etcd.Client) (of func(*resource.Info) resource.Store) {
	t.Helper()
	for _, info := range []*resource.Info{secrets, configMaps} {
		c.Store(info)
	}
	cache := watchcache.New(watchcache.Config{Feed: c.Feed("configmaps/", "secrets/"), Store: c.Store, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cache.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return cache.Store
}

func count(t *testing.T, s resource.Store) (int, error) {
	l, err := s.List(t.Context(), resource.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(l.Items), nil
}

// Of a process that starts while its KMS does not answer, other resources are served as soon as
// ever, those of the KMS fail at once with an error that names it, health says so, and all are
// served, with watches, once it is back.
func TestKMSAwayAtStart(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]struct{ begin, end func(*kmstest.Plugin) }{
		"dead":    {(*kmstest.Plugin).Stop, func(p *kmstest.Plugin) { p.Serve(t) }},
		"hangs":   {func(p *kmstest.Plugin) { p.SetHangs(true) }, func(p *kmstest.Plugin) { p.SetHangs(false) }},
		"refuses": {func(p *kmstest.Plugin) { p.SetRefuses(true) }, func(p *kmstest.Plugin) { p.SetRefuses(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, plugin := etcdtest.Start(t), kmstest.Start(t)
			before, _ := open(t, false, rule("secrets", kms(plugin)))
			c := client(t, server.DirectEndpoint(), before)
			const objects = 50
			for i := range objects {
				create(t, c, secrets, fmt.Sprint(i))
				create(t, c, configMaps, fmt.Sprint(i))
			}
			away.begin(plugin)
			e, _ := open(t, false, rule("secrets", kms(plugin)))
			of := cached(t, client(t, server.DirectEndpoint(), e))
			began := time.Now()
			eventually(t, "other resources are served", func() error {
				n, err := count(t, of(configMaps))
				if err == nil && n != objects {
					t.Fatalf("%d objects", n)
				}
				return err
			})
			await.Bar(t, "other resources", time.Since(began), 20*time.Second)
			const unreadable = `it is encrypted by KMS provider "vault" (v2), which does not answer (health check kms-providers)`
			if n, err := count(t, of(secrets)); err == nil || resource.AsStatus(err).Code != http.StatusInternalServerError || !strings.Contains(err.Error(), "secrets") || !strings.Contains(err.Error(), unreadable) {
				t.Errorf("list of what cannot be decrypted: %d objects, %v", n, err)
			}
			if _, err := e.ToStorage(secrets.GroupResource(), []byte("{}"), []byte("key")); err == nil || !strings.Contains(err.Error(), "the KMS provider of secrets in --encryption-provider-config cannot encrypt (health check kms-providers)") {
				t.Errorf("encrypt: %v", err)
			}
			if health(t, e) == nil || e.cfg.Probe(t.Context()) == nil {
				t.Error("the check passes")
			}
			away.end(plugin)
			eventually(t, "secrets are served again", func() error {
				n, err := count(t, of(secrets))
				if err == nil && n != objects {
					t.Fatalf("%d objects", n)
				}
				return err
			})
			eventually(t, "secrets are watched again", func() error {
				w, err := of(secrets).Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
				if err == nil {
					w.Close()
				}
				return err
			})
			eventually(t, "the check passes", func() error { return errors.Join(health(t, e), e.cfg.Probe(t.Context())) })
		})
	}
}

// A KMS that dies later stops neither reads nor writes with the keys that are cached. What it
// encrypted before its key was rotated is read, and is stale.
func TestKMSDiesAndRotates(t *testing.T) {
	t.Parallel()
	server, plugin := etcdtest.Start(t), kmstest.Start(t)
	e, _ := open(t, false, rule("secrets", kms(plugin)))
	c := client(t, server.DirectEndpoint(), e)
	create(t, c, secrets, "old")
	if err := get(t, c, secrets, "old"); err != nil {
		t.Fatal(err)
	}
	plugin.Stop()
	for i := range 20 {
		create(t, c, secrets, fmt.Sprint(i))
		if err := get(t, c, secrets, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	plugin.SetKey("key-2")
	plugin.Serve(t)
	next, _ := open(t, false, rule("secrets", kms(plugin)))
	eventually(t, "a process that starts is healthy", func() error { return health(t, next) })
	rotated := client(t, server.DirectEndpoint(), next)
	counts := map[etcd.Rewritten]int{}
	if err := rotated.Rewrite(t.Context(), "secrets/", func(r etcd.Rewritten, err error) error { counts[r]++; return err }); err != nil {
		t.Fatal(err)
	}
	if counts[etcd.Again] != 21 || len(counts) != 1 {
		t.Errorf("rewritten: %v", counts)
	}
	if err := get(t, c, secrets, "old"); err != nil {
		t.Errorf("the process with the old key reads what has the new one: %v", err)
	}
	if n := plugin.Decrypts(); n > 3 {
		t.Errorf("the plugin was asked %d times to decrypt", n)
	}
}

// Without a file nothing is encrypted, and nothing is to be done.
func TestNoFile(t *testing.T) {
	t.Parallel()
	e, err := Open(Config{})
	if err != nil || e != nil {
		t.Fatalf("%v, %v", e, err)
	}
	var cfg etcd.Config
	if e.Apply(&cfg); cfg.Transformer != nil {
		t.Error("there is a transformer")
	}
	e.AddChecks(func(string, func(*http.Request) error) { t.Error("there is a check") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != context.Canceled {
		t.Error(err)
	}
	e.Close()
}
