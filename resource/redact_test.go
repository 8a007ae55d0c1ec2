package resource

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"/api":                    "/api",
		"/api?watch=true":         "/api?watch=true",
		"/api?token=abc":          "/api?token=REDACTED",
		"/a?x=1&access_token=b&y": "/a?x=1&access_token=REDACTED&y",
		"/a?TOKEN=abc;b=2":        "/a?TOKEN=REDACTED;b=2",
		"/a?%74oken=abc":          "/a?%74oken=REDACTED",
		"/a?x=token":              "/a?x=token",
		"/token?x=1":              "/token?x=1",
		"/a?password=a=b":         "/a?password=REDACTED",
		"/a?continue=secret&tok":  "/a?continue=secret&tok",
		"/a?client_secret":        "/a?client_secret",
		"/a?%zztoken=1&%":         "/a?%zztoken=REDACTED&%",
	} {
		if got := RedactURI(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// Whatever the URI, no value of a parameter named token is left in it.
func FuzzRedact(f *testing.F) {
	f.Add("/a?token=", "s3cr3t")
	f.Add("/a?x=1&to%6ben=", "s3cr3t;y")
	f.Add("%", "&token")
	f.Fuzz(func(t *testing.T, before, value string) {
		if strings.ContainsAny(value, "&;?=") || strings.ContainsAny(before, "?") || value == "" {
			return
		}
		if got := RedactURI(before + "?token=" + value); got != before+"?token="+redacted {
			t.Errorf("got %q", got)
		}
	})
}
