package custom

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"portico/resource"
	"portico/resource/jsonscan"
)

// setFields sets the selectable fields of the row.
func (c *custom) setFields(codec *codec) {
	if len(c.version.SelectableFields) == 0 {
		return
	}
	paths, simple := map[string]*jsonpath.JSONPath{}, true
	for _, f := range c.version.SelectableFields {
		name := strings.TrimPrefix(f.JSONPath, ".")
		path := jsonpath.New(name).AllowMissingKeys(true)
		if path.Parse("{"+f.JSONPath+"}") != nil {
			continue // the definition was validated
		}
		paths[name] = path
		simple = simple && !strings.ContainsAny(name, `[]'"\`)
		c.kind.FieldLabels = append(c.kind.FieldLabels, name)
	}
	c.kind.FieldsBy = &identity{}
	c.kind.Fields = func(obj runtime.Object) map[string]string {
		out := make(map[string]string, len(paths))
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return out
		}
		for name, path := range paths {
			out[name] = ""
			found, err := path.FindResults(u.Object)
			if err == nil && len(found) > 0 && len(found[0]) > 0 && found[0][0].Interface() != nil {
				out[name] = fmt.Sprint(found[0][0].Interface())
			}
		}
		return out
	}
	if simple {
		c.kind.StoredFields = codec.storedFields(c.kind.FieldLabels)
	}
}

// storedFields returns rest.Kind.StoredFields for fields with simple paths. It reads them from the bytes of an object
// that is served as it is stored: a million objects of 300 bytes take 2 s instead of 14 s.
func (c *codec) storedFields(names []string) func(o *resource.Object) (map[string]string, bool) {
	paths := make([][]string, len(names))
	for i, name := range names {
		paths[i] = strings.Split(name, ".")
	}
	return func(o *resource.Object) (map[string]string, bool) {
		if o.APIVersion != c.gvk.GroupVersion().String() || o.Kind != c.gvk.Kind || !c.Canonical(o) {
			return nil, false
		}
		out := make(map[string]string, len(names))
		for i, path := range paths {
			s := &jsonscan.Scanner{}
			s.Reset(o.Data)
			value, ok := scanField(s, path)
			if !ok {
				return nil, false
			}
			out[names[i]] = value
		}
		return out, true
	}
}

// scanField returns the value of a field in the object at the scanner: a string, a boolean or an integer; "" if there is
// none. ok is false for anything else, and where a key is there twice.
func scanField(s *jsonscan.Scanner, path []string) (value string, ok bool) {
	if s.Peek() != '{' {
		return "", false
	}
	found, good := false, true
	for member := range s.Members {
		if string(member.Text()) != path[0] {
			s.Skip()
			continue
		}
		if found {
			return "", false
		}
		found = true
		if len(path) > 1 {
			value, good = scanField(s, path[1:])
		} else {
			value, good = scanScalar(s)
		}
		if !good {
			return "", false
		}
	}
	return value, s.Err() == nil
}

// maxDigits is the length of integers that certainly have 64 bits.
const maxDigits = 18

// scanScalar returns the text of a string, a boolean, an integer or null, which is "".
func scanScalar(s *jsonscan.Scanner) (text string, ok bool) {
	switch s.Peek() {
	case '"':
		return string(s.Text()), s.Err() == nil
	case '{', '[':
		return "", false
	}
	for _, word := range []string{"true", "false"} {
		if s.Literal(word) {
			return word, true
		}
	}
	if s.Literal("null") {
		return "", true
	}
	raw, integer, ok := s.Number()
	return string(raw), ok && integer && len(raw) <= maxDigits && raw[0] != '-'
}
