package resource

import (
	"encoding/base64"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestContinueRoundTrip(t *testing.T) {
	for _, key := range []string{"name", "ns/name", "a.b/c-d"} {
		for _, rv := range []int64{1, 1 << 40, InconsistentRevision} {
			gotRV, start, err := DecodeContinue(EncodeContinue(rv, key))
			if err != nil || gotRV != rv || start != key+"\x00" {
				t.Errorf("%s@%d: got %d, %q, %v", key, rv, gotRV, start, err)
			}
		}
	}
	// A token of kube-apiserver.
	want := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":7,"start":"ns/a\u0000"}`))
	if got := EncodeContinue(7, "ns/a"); got != want {
		t.Errorf("token %s, want %s", got, want)
	}
}

func TestDecodeContinueRejects(t *testing.T) {
	for name, token := range map[string]string{
		"base64":    "!!!",
		"json":      base64.RawURLEncoding.EncodeToString([]byte("{")),
		"version":   base64.RawURLEncoding.EncodeToString([]byte(`{"v":"v2","rv":1,"start":"a"}`)),
		"rv zero":   base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","start":"a"}`)),
		"rv below":  base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}`)),
		"no start":  base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1}`)),
		"escape":    EncodeContinue(1, "../secrets/a"),
		"escape in": EncodeContinue(1, "a/../../b"),
		"dot":       EncodeContinue(1, "./a"),
		"double":    EncodeContinue(1, "a//b"),
	} {
		_, _, err := DecodeContinue(token)
		if !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v, want BadRequest", name, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "invalid continue token: continue key is not valid: ") {
			t.Errorf("%s: message %q", name, err)
		}
	}
}

func FuzzDecodeContinue(f *testing.F) {
	f.Add(EncodeContinue(1, "a/b"))
	f.Add(EncodeContinue(-1, "../b"))
	f.Add("e30")
	for _, text := range []string{
		`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"ns/a\u0000"}`, `{"v":"meta.k8s.io/v1","rv":1e3,"start":"a"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"\ud83d"}`,
		`{"V":"meta.k8s.io/v1","RV":1,"start":"a"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"/a/b/"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":".."}`, "[[[[",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	f.Fuzz(func(t *testing.T, token string) {
		rv, start, err := DecodeContinue(token)
		if err != nil {
			return
		}
		if rv == 0 || rv < -1 || start == "" || strings.HasPrefix(start, "/") {
			t.Fatalf("accepted %d %q", rv, start)
		}
		for seg := range strings.SplitSeq(start, "/") {
			if seg == ".." || seg == "." {
				t.Fatalf("accepted %q", start)
			}
		}
		if below := path.Join("/registry/things", start); !strings.HasPrefix(below, "/registry/things/") {
			t.Fatalf("%q leads to %q", start, below)
		}
		last, ok := strings.CutSuffix(start, "\x00")
		if !ok || !utf8.ValidString(last) {
			return // not one of ours
		}
		againRV, again, err := DecodeContinue(EncodeContinue(rv, last))
		if err != nil || againRV != rv || again != start {
			t.Fatalf("%d %q became %d %q (%v)", rv, start, againRV, again, err)
		}
	})
}
