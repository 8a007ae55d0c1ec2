package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
	"portico/cmd/portico/config"
)

// command runs a command line in this process and returns what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	cmd, err := root.ExecuteContextC(t.Context())
	return out.String(), config.Explain(cmd, err)
}

const head = "apiVersion: config.portico.dev/v1alpha1\nkind: PorticoConfiguration\n"

// A configuration file that is wrong is refused by one line that has the file, the path in it, and
// what to do; the schema refuses it as well, unless only a reader of YAML or the process can see it.
func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	schema := configurationSchema(t)
	for _, tc := range []struct {
		name, text, want string
		unseen           bool // by the schema
	}{
		{"empty", "", "the file is empty; begin it with apiVersion: config.portico.dev/v1alpha1 and kind: PorticoConfiguration", false},
		{"no YAML", head + "core: [", "line 3: did not find expected node content", true},
		{"tabs", head + "core:\n\tevent-ttl: 2h", "found character that cannot start any token", true},
		{"text", "hello", "must have the form NAME: VALUE", false},
		{"two documents", head + "---\n" + head, "there is something after the document; a file has one document", true},
		{"no version", "kind: PorticoConfiguration", "apiVersion: must be config.portico.dev/v1alpha1", false},
		{"another version", "apiVersion: config.portico.dev/v7\nkind: PorticoConfiguration", "apiVersion: must be config.portico.dev/v1alpha1", false},
		{"another kind", "apiVersion: config.portico.dev/v1alpha1\nkind: Pod", "kind: must be PorticoConfiguration", false},
		{"unknown section", head + "scheduler: {v: 1}", "scheduler: there is no such section; there are all, up, gateway, core, crd, etcd", false},
		{"section twice", head + "core: {v: 1}\ncore: {v: 2}", "core: is there twice; remove the one in line 4", true},
		{"flag twice", head + "core:\n  v: 1\n  v: 2", "core.v: is there twice; remove the one in line 5", true},
		{"section is a list", head + "core: [v]", "core: must have the form NAME: VALUE", false},
		{"unknown flag", head + "core: {event-life: 2h}", "core.event-life: no process has the flag --event-life; portico config schema lists them", false},
		{"dashes", head + "core: {--event-ttl: 2h}", "core.--event-ttl: no process has the flag ----event-ttl", false},
		{"unknown flag for all", head + "all: {event-life: 2h}", "all.event-life: no process has the flag --event-life", false},
		{"flag of another process", head + "crd: {event-ttl: 2h}", "crd.event-ttl: portico crd has no flag --event-ttl; of the processes core has it", false},
		{"another file", head + "core: {config: a.yaml}", "core.config: a file cannot name another one; remove it", false},
		{"merge", head + "core: &c {v: 1}\ncrd: {<<: *c}", "crd.<<: no process has the flag --<<", true},
		{"duration without unit", head + "core: {event-ttl: 2}", `core.event-ttl: "2": must be a time with its unit, such as 90s or 2h`, false},
		{"no duration", head + "all: {event-ttl: soon}", `all.event-ttl: "soon": must be a time with its unit`, false},
		{"text for a number", head + "core: {v: high}", `core.v: "high": must be a whole number`, false},
		{"quoted number", head + `core: {v: "1"}`, `core.v: "1": must be a whole number`, false},
		{"fraction", head + "core: {v: 1.5}", `core.v: "1.5": must be a whole number`, false},
		{"negative limit", head + "gateway: {max-requests-inflight: -1}", `gateway.max-requests-inflight: "-1": must be a whole number`, false},
		{"text for a chance", head + "gateway: {goaway-chance: rarely}", `gateway.goaway-chance: "rarely": must be a number`, false},
		{"text for a switch", head + "core: {profiling: yes please}", `core.profiling: "yes please": must be true or false`, false},
		{"number for text", head + "gateway: {instance-id: 5}", `gateway.instance-id: "5": must be text; set it in quotes`, false},
		{"no value", head + "core: {event-ttl: }", "core.event-ttl: has no value; give one or remove it", false},
		{"mapping for a value", head + "core: {event-ttl: {hours: 2}}", "must be a time with its unit", false},
		{"list for one value", head + "core: {event-ttl: [2h]}", "core.event-ttl: takes one value, not a list", false},
		{"numbers in a list of texts", head + "core: {api-audiences: [5]}", "core.api-audiences: line 3: an item of the list must be text", false},
		{"negative time", head + "core: {event-ttl: -5s}", "core.event-ttl: --event-ttl=-5s: must not be negative", false},
		{"prefix without a slash", head + "all: {etcd-prefix: x}", "all.etcd-prefix: --etcd-prefix=x: must begin with a slash", true},
		{"unknown gate", head + "all: {feature-gates: NoSuchGate=true}", `all.feature-gates: "NoSuchGate=true": feature gate "NoSuchGate" is unknown`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "portico.yaml")
			e2e.WriteFile(t, file, tc.text)
			for _, args := range [][]string{{"config", "validate", file}, {"core", "--config=" + file}, {"up", "--config=" + file}} {
				_, err := command(t, args...)
				if err == nil || !strings.HasPrefix(err.Error(), file+": "+tc.want) && !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), file+": ") {
					t.Errorf("portico %s: %v, want %q", strings.Join(args, " "), err, tc.want)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("more than one line: %v", err)
				}
			}
			if refused := againstSchema(t, schema, tc.text); (refused == nil) != tc.unseen {
				t.Errorf("the schema: %v", refused)
			}
		})
	}
}

// Flags that a process refuses are named with the file or the variable that sets them.
func TestSourcesOfBadValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "portico.yaml")
	e2e.WriteFile(t, file, head+"core: {enable-admission-plugins: [Nope]}\ngateway: {backend: [core], etcd-servers: [unix:///x]}")
	for _, tc := range []struct{ command, want string }{
		{"core", file + `: core.enable-admission-plugins: --enable-admission-plugins: there is no plugin "Nope"`},
		{"gateway", file + `: gateway.backend: --backend "core": must have the form name=value`},
	} {
		if _, err := command(t, tc.command, "--config="+file); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.command, err, tc.want)
		}
	}
	t.Setenv("PORTICO_EVENT_TTL", "soon")
	if _, err := command(t, "core"); err == nil || err.Error() != `PORTICO_EVENT_TTL: "soon": must be a time with its unit, such as 90s or 2h` {
		t.Error(err)
	}
	t.Setenv("PORTICO_EVENT_TTL", "")
	// Names that nothing reads are refused; those of compose files, of tests and of links to Services are known.
	for _, known := range []string{"PORTICO_VERSION", "PORTICO_TEST_ANYTHING", "PORTICO_SERVICE_HOST", "PORTICO_ETCD_SERVICE_PORT_HTTPS", "PORTICO_PORT_6443_TCP_ADDR"} {
		t.Setenv(known, "1")
	}
	if _, err := command(t, "config", "view", "core"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"PORTICO_LISTN":    "PORTICO_LISTN: no process has the flag of this variable; did you mean PORTICO_LISTEN?",
		"PORTICO_NONSENSE": "PORTICO_NONSENSE: no process has the flag of this variable; unset it (portico config view lists the flags)",
	} {
		t.Setenv(name, "1")
		for _, line := range []string{"up", "core", "config view", "config validate " + file} {
			if _, err := command(t, strings.Fields(line)...); err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %q", line, err, want)
			}
		}
		t.Setenv(name, "")
	}
	t.Setenv("PORTICO_EVENT_TTL", "3h")
	if _, err := command(t, "up"); err == nil || err.Error() != "PORTICO_EVENT_TTL: portico up has no flag --event-ttl; set it in section core of the file of --config" {
		t.Error(err)
	}
}

// A flag is stronger than the environment, that than the section of the process, that than section all,
// and that than the default.
func TestStrengthOfSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "portico.yaml")
	e2e.WriteFile(t, file, head+`
all: {etcd-servers: ["http://u:secret@a:1", "http://b:2"], event-ttl: 2h, root-ca-file: all.crt, api-audiences: a}
core: {event-ttl: 3h, advertise-address: "1.2.3.4:5", shutdown-delay-duration: 4s}
crd:
`)
	t.Setenv("PORTICO_ADVERTISE_ADDRESS", "6.7.8.9:10")
	t.Setenv("PORTICO_SHUTDOWN_DELAY_DURATION", "5s")
	t.Setenv("PORTICO_BACKEND", "a=unix:///a\nb=https://b:1,https://b:2\n")
	t.Setenv("PORTICO_ETCD_PREFIX", "")
	out, err := command(t, "config", "view", "--config="+file, "core", "--", "--shutdown-delay-duration=6s")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"shutdown-delay-duration 6s flag",
		"advertise-address 6.7.8.9:10 PORTICO_ADVERTISE_ADDRESS",
		"event-ttl 3h0m0s " + file + ": core.event-ttl",
		"root-ca-file all.crt " + file + ": all.root-ca-file",
		"etcd-servers http://u:xxxxx@a:1,http://b:2 " + file + ": all.etcd-servers",
		"etcd-prefix /registry default",
		"http2-max-streams-per-connection 16 default",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), " core "+want+" ") {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, err = command(t, "config", "view", "--config="+file, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]struct {
		Flag, Source string
		Value        any
	}
	if err := yaml.UnmarshalStrict([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 5 || len(all["gateway"]) < 30 {
		t.Errorf("%d processes, %d flags of the gateway", len(all), len(all["gateway"]))
	}
	for _, s := range all["gateway"] {
		if list, _ := s.Value.([]any); s.Flag == "backend" && (len(list) != 2 || list[1] != "b=https://b:1,https://b:2" || s.Source != "PORTICO_BACKEND") {
			t.Errorf("--backend is %v from %s", s.Value, s.Source)
		}
	}
}

// config validate --files opens the files that processes read, and no others.
func TestValidateFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, tokens := filepath.Join(dir, "portico.yaml"), filepath.Join(dir, "tokens.csv")
	e2e.WriteFile(t, file, head+"gateway: {etcd-servers: ['unix:///e'], listen: ['unix:///g'], token-auth-file: "+tokens+", access-log: "+dir+"/none/access.log}")
	if out, err := command(t, "config", "validate", file); err != nil || out != file+" is valid\n" {
		t.Error(out, err)
	}
	if _, err := command(t, "config", "validate", "--files", file); err == nil || !strings.Contains(err.Error(), ": open "+tokens+": no such file") {
		t.Error(err)
	}
	e2e.WriteFile(t, tokens, "t,jane,1\n")
	if _, err := command(t, "config", "validate", "--files", file); err != nil {
		t.Error(err)
	}
}

var update = flag.Bool("update", false, "write docs/portico-configuration.schema.json")

// docs/portico-configuration.schema.json is what portico config schema prints.
func TestSchemaIsUpToDate(t *testing.T) {
	t.Parallel()
	out, err := command(t, "config", "schema")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(e2e.Repository(), "docs", "portico-configuration.schema.json")
	if *update {
		if err := os.WriteFile(name, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != out {
		t.Errorf("it differs (%v); go test ./cmd/portico -run TestSchemaIsUpToDate -update writes it", err)
	}
}

// The configuration files in docs/, in deploy/ and in examples of commands are valid.
func TestDocumentedConfigurations(t *testing.T) {
	t.Parallel()
	samples := map[string]string{}
	for name, text := range documentsOf(t) {
		samples[name] = text
	}
	for _, cmd := range allCommands(newRoot()) {
		samples[cmd.CommandPath()+" --help"] = cmd.Example
	}
	err := filepath.WalkDir(filepath.Join(e2e.Repository(), "deploy"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if !bytes.Contains(data, []byte("{{")) { // a template
			samples[path] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	schema, found := configurationSchema(t), 0
	// The block of lines with the indentation of the first one.
	block := regexp.MustCompile(`(?m)^( *)apiVersion: config\.portico\.dev/.*\n(?:(?: .*)?\n|[a-z].*\n?)*`)
	for name, text := range samples {
		for _, m := range block.FindAllStringSubmatch(text+"\n", -1) {
			var file string
			for line := range strings.Lines(m[0]) {
				rest, inside := strings.CutPrefix(line, m[1])
				if !inside && strings.TrimSpace(line) != "" {
					break
				}
				file += strings.TrimLeft(rest, "\x00")
			}
			found++
			path := filepath.Join(t.TempDir(), "portico.yaml")
			e2e.WriteFile(t, path, file)
			if _, err := command(t, "config", "validate", path); err != nil {
				t.Errorf("%s: %v\n%s", name, err, file)
			}
			if err := againstSchema(t, schema, file); err != nil {
				t.Errorf("%s: the schema: %v\n%s", name, err, file)
			}
		}
	}
	if found < 2 {
		t.Errorf("found %d files", found)
	}
}

func configurationSchema(t *testing.T) *spec.Schema {
	t.Helper()
	out, err := command(t, "config", "schema")
	if err != nil {
		t.Fatal(err)
	}
	schema := new(spec.Schema)
	if err := schema.UnmarshalJSON([]byte(out)); err != nil {
		t.Fatal(err)
	}
	return schema
}

// againstSchema validates a file by the schema. What is no YAML is valid.
func againstSchema(t *testing.T, schema *spec.Schema, text string) error {
	t.Helper()
	var value any
	if yaml.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return validate.AgainstSchema(schema, value, strfmt.Default)
}
