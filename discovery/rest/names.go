package rest

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxKind bounds the name of a kind, in bytes, as that of a resource is.
const maxKind = validation.DNS1123LabelMaxLength

// reserved are first segments that resource.ParseAction interprets differently.
var reserved = map[string]bool{"namespaces": true, "watch": true, "proxy": true}

// segment is a segment of a path: a name or a parameter ("{id}").
type segment struct {
	text  string
	place bool
}

// segments splits a path without its prefix.
func segments(path string) ([]segment, error) {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if path == "" {
		return nil, errors.New("it names no resource")
	}
	var out []segment
	for text := range strings.SplitSeq(path, "/") {
		s := segment{text: text}
		switch {
		case text == "":
			return nil, errors.New("it has an empty segment")
		case text == "." || text == "..":
			return nil, fmt.Errorf("it has the segment %q", text)
		case text[0] == '{' && strings.IndexByte(text, '}') == len(text)-1:
			s.place = true
		case strings.ContainsAny(text, "{}"):
			return nil, fmt.Errorf("the segment %q is only partly a parameter", clip(text))
		}
		out = append(out, s)
	}
	return out, nil
}

// named returns why a segment cannot be the name of a resource or subresource.
func (s segment) named(what string) error {
	switch {
	case s.place:
		return fmt.Errorf("its %s is a parameter", what)
	case len(validation.IsDNS1123Label(s.text)) > 0:
		return fmt.Errorf("%q cannot be the name of a %s: those are lower-case letters, digits and '-', at most %d", clip(s.text), what, validation.DNS1123LabelMaxLength)
	}
	return nil
}

// maxQuoted bounds quotations in reasons, in bytes.
const maxQuoted = 100

func clip(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "…"
}

// kindName returns the name of a kind for the name of a schema ("api.Pet-Input"); "" if it has no
// letters.
func kindName(text string) string {
	text = text[strings.LastIndexByte(text, '.')+1:]
	var out strings.Builder
	upper := true
	for i := 0; i < len(text) && out.Len() < maxKind; i++ {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9' || out.Len() == 0) {
			upper = true
			continue
		}
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper = false
		out.WriteByte(c)
	}
	return out.String()
}

// singular returns the singular of a regular English plural.
func singular(name string) string {
	for _, rule := range []struct{ from, to string }{
		{"ies", "y"}, {"sses", "ss"}, {"shes", "sh"}, {"ches", "ch"}, {"xes", "x"}, {"ss", "ss"}, {"us", "us"}, {"is", "is"}, {"s", ""},
	} {
		if stem, ok := strings.CutSuffix(name, rule.from); ok && stem != "" {
			return stem + rule.to
		}
	}
	return name
}
