package upstream

import "testing"

// ParseURL accepts unix, https and http URLs without user, path and query.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]string{
		"unix:///run/core.sock":   {"http://core", "unix", "/run/core.sock"},
		"https://10.0.0.1:6444":   {"https://10.0.0.1:6444", "tcp", "10.0.0.1:6444"},
		"https://api.example.com": {"https://api.example.com", "tcp", "api.example.com:443"},
		"http://[::1]/":           {"http://[::1]", "tcp", "[::1]:80"},
	} {
		e, err := ParseURL("core", text)
		if err != nil || [3]string{e.Base.String(), e.Network, e.Address} != want || e.URL != text || e.Weight != 1 {
			t.Errorf("%s: %+v %v", text, e, err)
		}
	}
	for _, text := range []string{"", "ftp://a:80", "unix://", "unix://a/b", "10.0.0.1:80", "https://", ":", "https://u@a", "https://a/b", "https://a?b"} {
		if _, err := ParseURL("core", text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
