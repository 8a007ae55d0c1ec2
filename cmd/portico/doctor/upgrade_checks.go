package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	etcdversion "go.etcd.io/etcd/api/v3/version"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/stored"
	"portico/resource/etcd"
	"portico/resource/serve/version"
)

// upgradeChecks are those of upgrade-check, in the order in which they are shown.
var upgradeChecks = []check{
	{"written-by", "the version that wrote the data, and this one", writtenBy,
		"back further than one minor version needs a backup of that version (docs/storage.md#back)"},
	{"versions", "versions of gateway, core and CRD server, and of this program", versions,
		"replace one process at a time, in the order of docs/storage.md#order, and let versions differ by one minor version at most"},
	{"etcd-version", "the version of etcd's data, and that of the embedded etcd", etcdData,
		"make a backup before: an older portico up does not start on data of a newer etcd (docs/storage.md#back)"},
	{"kinds", "objects of kinds that this version does not know", unknownKinds,
		"delete the objects with the version that serves them, or use a version that knows the kind: they stay in etcd and are not served"},
	{"objects", "objects that this version cannot read", unreadable,
		"write them anew with the version that can read them, or delete them (kubectl delete, or etcdctl del KEY)"},
	{"formats", "objects that are stored in another form than this version writes", formats,
		"nothing: they are read, and stored in the new form when they are next changed"},
	{"definitions", "versions of CustomResourceDefinitions that objects may be stored in and that are not served", definedVersions,
		"write all objects of the kind anew, and then remove the version from status.storedVersions"},
	{"custom-resources", "custom resources in a version that their definition has not, or without a definition", customVersions,
		"add the version to the definition, write the objects anew, and then remove it"},
	{"documents", "documents of Portico's own in a format that this version does not know", ownDocuments,
		"nothing: they are ignored, and made anew while the servers answer; have them all running during the upgrade"},
	{"configuration", "sections and flags of the configuration file that this version does not have", configuration,
		"CHANGELOG.md says what has become of a flag; portico config validate checks the file"},
	{"key-pairs", "whether certificates and keys in the data folder belong together", keyPairs,
		"restore both files from one backup, or remove both and start portico up, which makes them again"},
	{"step-back", "whether the version before can take the installation back", stepBack,
		"make a backup with the version that runs now, before the upgrade: portico backup (docs/storage.md#back)"},
}

// distance compares versions of portico: how many minor versions a is newer than b, and whether it is newer at all; known
// is false if one of them is of no release.
func distance(a, b string) (minors int, newer, known bool) {
	x, errX := utilversion.ParseSemantic(a)
	y, errY := utilversion.ParseSemantic(b)
	if errX != nil || errY != nil || untagged(x) || untagged(y) {
		return 0, false, false
	}
	// Each major version counts as more minor versions than any has.
	const major = 1000
	minors = (int(x.Major())-int(y.Major()))*major + int(x.Minor()) - int(y.Minor())
	return minors, y.LessThan(x), true
}

// untagged reports whether a version is that of a commit before the first tag.
func untagged(v *utilversion.Version) bool { return v.Major() == 0 && v.Minor() == 0 }

func writtenBy(_ context.Context, t *target) finding {
	return judgeWriters(version.Version(), t.stored.Versions)
}

func judgeWriters(own string, recorded map[string]string) finding {
	if len(recorded) == 0 {
		return ok("no version is recorded, as before v0.2.0; this is %s", own)
	}
	var w worst
	var texts []string
	for _, process := range slices.Sorted(maps.Keys(recorded)) {
		text := fmt.Sprintf("%s %s", process, recorded[process])
		texts = append(texts, text)
		switch minors, newer, known := distance(recorded[process], own); {
		case !known:
		case minors > 1:
			w.fail("%s, which is %d minor versions newer than this %s", text, minors, own)
		case newer:
			w.warn("%s, which is newer than this %s: it is a step back", text, own)
		}
	}
	return w.finding("%s; this is %s", strings.Join(texts, ", "), own)
}

func etcdData(_ context.Context, t *target) finding {
	return judgeEtcd(t.etcdVersion, etcdversion.Version, t.embedded)
}

func judgeEtcd(data, linked string, embedded bool) finding {
	if !embedded {
		return ok("%s, of your own", data)
	}
	if data == "" {
		return ok("before 3.6; this has %s", linked)
	}
	switch minors, _, _ := distance(data, linked); {
	case minors > 0:
		return fail("the data is of etcd %s and this has %s, which does not start on it", data, linked)
	case minors < 0:
		return warn("the data is of etcd %s and becomes that of %s", data, linked)
	}
	return ok("%s, as in this version", data)
}

func unknownKinds(_ context.Context, t *target) finding {
	var w worst
	objects := 0
	for _, r := range t.stored.Resources {
		objects += r.Objects
		if r.Process == "" && !strings.Contains(r.Path, "/") {
			w.fail("%d objects below %s", r.Objects, r.Path)
		}
	}
	return w.finding("%s of %s, all known", cli.Plural(objects, "object"), cli.Plural(len(t.stored.Resources), "resource"))
}

func unreadable(_ context.Context, t *target) finding {
	var w worst
	for _, text := range t.stored.Unreadable {
		w.fail("%s", text)
	}
	return w.finding("every object can be read")
}

func formats(_ context.Context, t *target) finding {
	var old []string
	for _, r := range t.stored.Resources {
		for _, form := range slices.Sorted(maps.Keys(r.Forms)) {
			if r.Written != "" && form != r.Written && r.Definition == nil {
				old = append(old, fmt.Sprintf("%d of %s in %s", r.Forms[form], r.Path, form))
			}
		}
	}
	if len(old) > 0 {
		return warn("%s", some(old))
	}
	return ok("all as this version writes them")
}

func definedVersions(_ context.Context, t *target) finding {
	var w worst
	for _, d := range t.definitions {
		for _, v := range d.Stored {
			if served, exists := d.Versions[v]; !exists {
				w.fail("%s: %s is a stored version, and not a version", d.Name, v)
			} else if !served {
				w.warn("%s: %s is not served", d.Name, v)
			}
		}
	}
	return w.finding("%s", cli.Plural(len(t.definitions), "definition"))
}

func customVersions(_ context.Context, t *target) finding {
	var w worst
	objects := 0
	for _, r := range t.stored.Resources {
		switch {
		case r.Process == "" && strings.Contains(r.Path, "/"):
			w.warn("%d objects below %s have no definition", r.Objects, r.Path)
		case r.Definition != nil:
			objects += r.Objects
			judgeForms(&w, r)
		}
	}
	return w.finding("%s", cli.Plural(objects, "object"))
}

func judgeForms(w *worst, r *stored.Resource) {
	for _, form := range slices.Sorted(maps.Keys(r.Forms)) {
		v := stored.Version(form)
		_, exists := r.Definition.Versions[v]
		if !exists {
			w.warn("%d of %s are in %s, which their definition does not have", r.Forms[form], r.Path, v)
		}
	}
}

func ownDocuments(_ context.Context, t *target) finding {
	var w worst
	for _, text := range t.stored.Foreign {
		w.warn("%s", text)
	}
	return w.finding("%d", t.stored.Keys[etcd.DocumentKeys])
}

func configuration(_ context.Context, t *target) finding {
	if t.configFile == "" {
		return skip("no file is named with --config")
	}
	var w worst
	for _, err := range t.config {
		w.fail("%v", err)
	}
	return w.finding("%s is valid", t.configFile)
}

// stepBack says whether there is a way back without a backup: what this version writes is read by the one before, but for
// the data of a newer etcd.
func stepBack(_ context.Context, t *target) finding {
	if minors, _, _ := distance(etcdversion.Version, t.etcdVersion); t.embedded && t.etcdVersion != "" && minors > 0 {
		return warn("not after a start of this version: the data becomes that of etcd %s", etcdversion.Version)
	}
	for _, d := range t.definitions {
		if d.Webhook {
			return warn("possible, but v0.1.0 does not call the conversion webhook of %s: of its objects it serves only the stored version", d.Name)
		}
	}
	return ok("possible: this version writes nothing that the one before cannot read")
}
