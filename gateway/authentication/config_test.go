package authentication

import (
	"reflect"
	"testing"

	"portico/resource/authn"
)

// Tokens are for all issuers, and front proxies use X-Remote-*, unless the configuration says
// otherwise, for each header by itself.
func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{ServiceAccounts: ServiceAccounts{Issuers: []string{"https://new", "https://old"}}}
	cfg.RequestHeader.Headers.User = []string{"X-Login-User", "X-Remote-User"}
	cfg.Complete()
	want := authn.DefaultHeaderNames()
	want.User = []string{"X-Login-User", "X-Remote-User"}
	if !reflect.DeepEqual(cfg.RequestHeader.Headers, want) || !reflect.DeepEqual(cfg.APIAudiences, []string{"https://new", "https://old"}) {
		t.Errorf("got %+v", cfg)
	}
	if got := cfg.IdentityHeaders(); !reflect.DeepEqual(got.User, []string{"X-Login-User"}) || len(got.UID)+len(got.Group)+len(got.ExtraPrefix) > 0 {
		t.Errorf("removed besides X-Remote-*: %+v", got)
	}
	cfg = Config{ServiceAccounts: ServiceAccounts{Issuers: []string{"https://new"}}, APIAudiences: []string{"a"}}
	if cfg.Complete(); !reflect.DeepEqual(cfg.APIAudiences, []string{"a"}) {
		t.Errorf("got %+v", cfg.APIAudiences)
	}
}
