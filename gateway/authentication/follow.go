package authentication

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"

	"portico/resource/authn"
)

// follower takes over changes of the file of the configuration.
type follower struct {
	*Authentication
	last string // text that took effect, or that never will
}

// Run keeps the issuers of tokens, and takes over changes of the configuration, until ctx ends.
func (a *Authentication) Run(ctx context.Context) error {
	if a.issuers == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	defer a.issuers.retiring.Wait()
	first, err := a.issuers.make(ctx, a.configuration)
	if err != nil {
		return err
	}
	a.issuers.current.Store(first)
	if a.file == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	metrics.RegisterMetrics()
	metrics.RecordAuthenticationConfigLastConfigInfo(a.issuers.host, a.text)
	f := follower{a, a.text}
	return authn.Follow(ctx, func() { f.look(ctx) })
}

// look reads the file. A configuration that is invalid is reported once. One that is valid and has
// an issuer that does not answer is tried again.
func (f *follower) look(ctx context.Context) {
	next, text, err := read(f.file)
	if text != "" && text == f.last {
		return
	}
	final := text != "" // the text was read, and is wrong by itself
	if err == nil {
		err = f.check(next)
	}
	if err == nil {
		err, final = f.issuers.update(ctx, next), false
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.log.Error("the authentication configuration is not valid; what was read before stays in use", "file", f.file, "err", err)
		metrics.RecordAuthenticationConfigAutomaticReloadFailure(f.issuers.host)
		if final {
			f.last = text
		}
	default:
		f.log.Info("reloaded authentication config", "file", f.file, "issuers", len(next.JWT))
		metrics.RecordAuthenticationConfigAutomaticReloadSuccess(f.issuers.host, text)
		f.last = text
	}
}

// check refuses a configuration that is invalid, or that changes what is read once.
func (f *follower) check(next *apiserver.AuthenticationConfiguration) error {
	if !reflect.DeepEqual(f.configuration.Anonymous, next.Anonymous) {
		return field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file")
	}
	return validate(next, f.issuers.accounts, f.issuers.egress)
}
