package version

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// GET /version has the API level, and Portico's version as the build part of gitVersion.
func TestVersion(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/version", nil))
	var got map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	v, err := version.ParseSemantic(got["gitVersion"])
	if err != nil || v.Minor() != 37 || !strings.HasPrefix(v.BuildMetadata(), "portico.") {
		t.Errorf("gitVersion %s: %v", got["gitVersion"], err)
	}
	if got["major"] != "1" || got["minor"] != "37" || got["emulationMinor"] != "37" || got["minCompatibilityMinor"] != "36" || got["platform"] == "" {
		t.Errorf("got %v", got)
	}
	if !strings.HasPrefix(w.Body.String(), "{\n  \"major\"") || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %v %s", w.Header(), w.Body)
	}
	for in, want := range map[string]string{
		"": "devel", "(devel)": "devel", "v0.3.1": "0.3.1", "v0.0.0-20260101-abc+dirty": "0.0.0-20260101-abc.dirty", "+/": "devel",
	} {
		got := buildPart(in)
		if _, err := version.ParseSemantic("v1.37.2+portico." + got); got != want || err != nil {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
}
