package resource

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"/api":                                   "/api",
		"/api?":                                  "/api?",
		"/api?watch=true":                        "/api?watch=true",
		"/api?token=abc":                         "/api?token=REDACTED",
		"/a?watch=1&sig=b&pretty":                "/a?watch=1&sig=REDACTED&pretty",
		"/a?TOKEN=abc;limit=2":                   "/a?TOKEN=REDACTED;limit=2",
		"/a?%74oken=abc":                         "/a?%74oken=REDACTED",
		"/a?%77atch=abc":                         "/a?%77atch=REDACTED",
		"/a?Watch=abc":                           "/a?Watch=REDACTED",
		"/a?watch=token":                         "/a?watch=token",
		"/token?limit=1":                         "/token?limit=1",
		"/a?password=a=b":                        "/a?password=REDACTED",
		"/a?continue=abc&tok":                    "/a?continue=abc&REDACTED",
		"/a?eyJhbGciOi":                          "/a?REDACTED",
		"/a?=abc&&watch":                         "/a?=REDACTED&&watch",
		"/a?%zztoken=1&%":                        "/a?%zztoken=REDACTED&REDACTED",
		"/exec?command=sh&command=-c&stdin=true": "/exec?command=sh&command=-c&stdin=true",
		"/a?jwt=1&pwd=2&auth=3&key=4&code=5&sessionid=6&q=7": "/a?jwt=REDACTED&pwd=REDACTED&auth=REDACTED&key=REDACTED&code=REDACTED&sessionid=REDACTED&q=REDACTED",
	} {
		if got := RedactURI(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// Whatever the URI, no value of a parameter that is not one of Kubernetes is left in it.
func FuzzRedact(f *testing.F) {
	f.Add("/a?token=", "s3cr3t")
	f.Add("/a?watch=1&to%6ben=", "s3cr3t;y")
	f.Add("%", "&token")
	f.Fuzz(func(t *testing.T, before, value string) {
		if strings.ContainsAny(value, "&;?=") || strings.ContainsAny(before, "?") || value == "" {
			return
		}
		if got := RedactURI(before + "?sig=" + value); got != before+"?sig="+redacted {
			t.Errorf("got %q", got)
		}
	})
}
