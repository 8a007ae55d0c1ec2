package openapi

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	"portico/resource/rest"
)

// builderVersion is part of every hash: clients cache documents by their hash,
// so a builder that writes something else must count it up.
const builderVersion = 3

// hashSeed says what every document depends on besides its kinds: the builder
// and the modules whose Go types it describes.
func hashSeed() string {
	var out strings.Builder
	fmt.Fprintln(&out, builderVersion)
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range bi.Deps {
			if strings.HasPrefix(m.Path, "k8s.io/") {
				fmt.Fprintln(&out, m.Path, m.Version)
			}
		}
	}
	return out.String()
}

// inputHash digests what a document is made from, in the form that clients see
// in URLs and ETags.
func inputHash(seed, key string, m *members) string {
	h := sha512.New()
	fmt.Fprintf(h, "%s%q\n", seed, key)
	for _, k := range m.kinds {
		fmt.Fprintf(h, "%q %q %q %v %q %v %v %q\n", k.Resource, k.Kind, k.List(), k.Namespaced, k.Verbs, k.Review != nil, k.ReturnDeleted, k.PatchTypes(m.version))
		for i := range k.Subresources {
			s := &k.Subresources[i]
			fmt.Fprintf(h, "- %q %q %q %v %v %q\n", s.Name, s.Verbs, s.GVK.String(), s.Create != nil, s.Connect != nil, s.PatchTypes(k, m.version))
		}
		if k.Schema != nil {
			fmt.Fprintf(h, "= %q %q\n", k.FieldLabels, schemaInputs(k, m.version))
		}
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)))
}

func schemaInputs(k *rest.Kind, version string) string {
	if k.SchemaInputs == nil {
		return ""
	}
	return k.SchemaInputs(version)
}
