package discovery

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// unescapeToken undoes the escapes of a JSON pointer (RFC 6901, 4). It replaces in one pass, so that ~01 becomes ~1.
var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

// ReferenceName returns the name that a reference in an OpenAPI document has below a prefix ("#/components/schemas/"): a
// JSON pointer in the fragment of a URL, so that %7E is "~", ~1 is "/" and ~0 is "~". ok is false without the prefix.
func ReferenceName(ref, prefix string) (name string, ok bool) {
	name, ok = strings.CutPrefix(ref, prefix)
	if !ok || !strings.ContainsAny(name, "~%") {
		return name, ok
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return unescapeToken.Replace(name), true
}

// escaped matches what a reference cannot have as it stands.
var escaped = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// ComponentName returns a name of a component for documents of the gateway, with "_2f" for "/": OpenAPI 3.0 permits letters,
// digits, ".", "_" and "-" only, and readers of v2 look up references as they stand.
func ComponentName(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(c string) string { return fmt.Sprintf("_%x", c) })
}
