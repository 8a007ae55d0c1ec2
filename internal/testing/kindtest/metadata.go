package kindtest

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Generated returns the name that stands for those generated from a generateName.
func Generated(base string) string { return base[:min(len(base), 58)] + "abcde" }

// names and generateNames are those that some kinds refuse.
var (
	names = []string{
		"a", "a.b", "A", "1a", "a-", "-a", "a:b", "a_b", "a/b", "a%b", "..", "", "system-node-critical", "system-x", "127.0.0.1", "127.0.0.01",
		"example.com:signer:a", strings.Repeat("a", 52), strings.Repeat("a", 53), strings.Repeat("a", 63), strings.Repeat("a", 64),
		strings.Repeat("a", 253), strings.Repeat("a", 254),
	}
	generateNames = []string{"a-", "a.b", "A", "a_b", "a%b", "..", "example.com:signer:a", strings.Repeat("a", 63), strings.Repeat("a", 254)}
)

// annotations are those that rules look at, with usual and wrong values.
var annotations = map[string][]string{
	"a/b/c": {"x"}, "A b!": {"x"}, "a": {"x", strings.Repeat("x", 300_000)},
	"autoscaling.alpha.kubernetes.io/behavior":               {"{}", "x"},
	"autoscaling.alpha.kubernetes.io/metrics":                {"[]", "x"},
	"container.apparmor.security.beta.kubernetes.io/batch":   {"", "localhost/x", "runtime/default", "x"},
	"container.apparmor.security.beta.kubernetes.io/none":    {"x"},
	"container.seccomp.security.alpha.kubernetes.io/batch":   {"runtime/default", "localhost/../x", "x"},
	"controller.kubernetes.io/pod-deletion-cost":             {"1", "+1", "01", "2147483648", "x"},
	"deprecated.daemonset.template.generation":               {"7", "x"},
	"kubernetes.io/config.mirror":                            {"x"},
	"kubernetes.io/enforce-mountable-secrets":                {"true"},
	"kubernetes.io/ingress.class":                            {"", "nginx"},
	"kubernetes.io/service-account.name":                     {"", "default"},
	"non-convertible.kubernetes.io/x":                        {"x"},
	"pod.beta.kubernetes.io/init-containers":                 {"[]"},
	"scheduler.alpha.kubernetes.io/critical-pod":             {""},
	"scheduler.alpha.kubernetes.io/preferAvoidPods":          {"", "{}", "x", `{"preferAvoidPods":[{}]}`},
	"scheduler.alpha.kubernetes.io/taints":                   {"", "[]", "x", `[{"key":"A b!"}]`},
	"scheduler.alpha.kubernetes.io/tolerations":              {"", "[]", "x", `[{"operator":"x"}]`},
	"seccomp.security.alpha.kubernetes.io/pod":               {"runtime/default", "localhost/../x", "x"},
	"service.beta.kubernetes.io/load-balancer-source-ranges": {"", "10.0.0.0/8, fd00::/8", "10.0.0.0/8,x", "10.0.0.1/8"},
	"service.kubernetes.io/topology-aware-hints":             {"auto"},
	"service.kubernetes.io/topology-mode":                    {"auto"},
	"volume.beta.kubernetes.io/mount-options":                {"ro", "x y"},
	"volume.beta.kubernetes.io/storage-class":                {"", "fast", "A b!"},
}

// otherMetadata are values of other fields.
var otherMetadata = map[string][]any{
	"labels": {
		map[string]any{"A b!": "x"}, map[string]any{"a": strings.Repeat("a", 64)}, map[string]any{"kubernetes.io/metadata.name": "x"},
	},
	"finalizers":      {[]any{"x"}, []any{"a/b"}, []any{"A b!"}, []any{"foregroundDeletion", "orphan"}},
	"generation":      {-1, 7},
	"ownerReferences": {[]any{map[string]any{}}, []any{owner("Pod", "a"), owner("Pod", "b")}, []any{owner("Event", "a")}},
}

func owner(kind, name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": true}
}

// MetadataCases calls emit with writes of valid objects with other metadata: the first one with
// other names, and all with other annotations, labels, finalizers and owners.
func MetadataCases(objects []map[string]any, emit func(Case)) {
	for i, base := range objects {
		old := Encoded(base)
		write := func(what string, path []any, value any) {
			change := strconv.Itoa(i) + " with " + what + " " + short(value)
			body := func() []byte { return Encoded(Put(Clone(base), path, value)) }
			emit(Case{"create " + change, body, nil})
			emit(Case{"update " + change, body, old})
		}
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			for _, value := range annotations[key] {
				write("annotation "+key, []any{"metadata", "annotations", key}, value)
			}
		}
		for _, field := range slices.Sorted(maps.Keys(otherMetadata)) {
			for _, value := range otherMetadata[field] {
				write(field, []any{"metadata", field}, value)
			}
		}
	}
	for _, name := range names {
		emit(Case{"create with name " + short(name), func() []byte {
			return Encoded(Put(Clone(objects[0]), []any{"metadata", "name"}, name))
		}, nil})
	}
	for _, name := range generateNames {
		emit(Case{"create with generateName " + short(name), func() []byte {
			named := Put(Clone(objects[0]), []any{"metadata", "generateName"}, name)
			return Encoded(Put(named, []any{"metadata", "name"}, ""))
		}, nil})
	}
}

// short returns a value in JSON, cut if it is long.
func short(v any) string {
	text := string(Encoded(v))
	if len(text) > 80 {
		text = text[:20] + "... (" + strconv.Itoa(len(text)) + " bytes)"
	}
	return text
}

// Recorded are the causes and warnings of cases for each resource ("v1.pods").
type Recorded map[string]map[string][]string

// others stands for the resources that are not listed.
const others = "*"

// Of returns those of a case for a resource.
func (r Recorded) Of(name, resource string) []string {
	lines, ok := r[name][resource]
	if !ok {
		return r[name][others]
	}
	return lines
}

// Add sets those of a case for a resource.
func (r Recorded) Add(name, resource string, o Outcome) {
	if r[name] == nil {
		r[name] = map[string][]string{}
	}
	r[name][resource] = Lines(name, o)
}

// Lines returns the causes of a case, and the warnings about the annotation or the name that it
// has, as they are recorded.
func Lines(name string, o Outcome) []string {
	about := "metadata.name:"
	if _, annotation, ok := strings.Cut(name, " with annotation "); ok {
		about, _, _ = strings.Cut(annotation, ` "`)
	}
	var out []string
	for _, c := range o.Causes {
		out = append(out, strings.ReplaceAll(c.String(), "\n", `\n`))
	}
	for _, w := range o.Warnings {
		if strings.Contains(w, about) {
			out = append(out, "warning: "+w)
		}
	}
	return out
}

// Write writes r: for each case a line with its name, and below it the resources with the same
// lines, and these. Cases without any are left out.
func (r Recorded) Write(t testing.TB, file string) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		byLines, most := map[string][]string{}, ""
		for _, resource := range slices.Sorted(maps.Keys(r[name])) {
			lines := strings.Join(r[name][resource], "\n")
			byLines[lines] = append(byLines[lines], resource)
		}
		all := slices.Sorted(maps.Keys(byLines))
		for _, lines := range all {
			if len(byLines[lines]) > len(byLines[most]) {
				most = lines
			}
		}
		byLines[most] = []string{others}
		if len(all) == 1 && most == "" {
			continue
		}
		b.WriteString(name + "\n")
		for _, lines := range all {
			b.WriteString("\t" + strings.Join(byLines[lines], " ") + "\n")
			for line := range strings.Lines(lines) {
				b.WriteString("\t\t" + strings.TrimSuffix(line, "\n") + "\n")
			}
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// ReadRecorded reads what Write has written.
func ReadRecorded(t testing.TB, file string) Recorded {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, name := Recorded{}, ""
	var resources []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		text, isText := strings.CutPrefix(line, "\t\t")
		list, isList := strings.CutPrefix(line, "\t")
		switch {
		case isText:
			for _, resource := range resources {
				r[name][resource] = append(r[name][resource], text)
			}
		case isList:
			resources = strings.Fields(list)
			for _, resource := range resources {
				r[name][resource] = nil
			}
		default:
			name = line
			r[name] = map[string][]string{}
		}
	}
	return r
}
