package probe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The command succeeds if the answer is 2xx, and says why otherwise.
func TestProbe(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, "/readyz", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "[-]etcd failed:\n  no leader", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, tc := range []struct{ args, want string }{
		{server.URL + "/readyz", ""},
		{server.URL + "/livez", "503 Service Unavailable: [-]etcd failed: no leader"},
		{server.URL + "/moved", "302 Found"},
		{server.URL + "/slow --timeout=50ms", "/slow: no answer within 50ms (--timeout)"},
		{closed.URL, "connection refused"},
		{server.URL + " --timeout=0s", "--timeout must be positive, such as 3s"},
		{"127.0.0.1:8080/readyz", `"127.0.0.1:8080/readyz": must be a URL, as in http://127.0.0.1:8080/readyz`},
		{"unix:///run/x", "must be a URL"},
		{"", "an argument is missing, as in: probe http://127.0.0.1:8080/readyz; "},
	} {
		cmd := New()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(tc.args))
		err := cmd.ExecuteContext(t.Context())
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("probe %s: %v, want %q", tc.args, err, tc.want)
		}
	}
}
