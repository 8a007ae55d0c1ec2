package routing

import (
	"fmt"
	"slices"
	"strings"

	"portico/apiservice"
	"portico/apiservice/backend"
)

// maxRivals bounds the Backends that a warning names.
const maxRivals = 3

// WarnOfService says which other Backends name the same port of a Service as b, and
// which of them all APIServices of that Service go by; "" if b is alone with it. REST
// servers are no rivals: APIServices of others do not go to them. It goes by the
// Backends that this gateway follows, and so does not see what is written at the same
// moment.
func (s *Controller) WarnOfService(b *backend.Backend) string {
	if b.Spec.Service == nil || b.Spec.REST != nil {
		return ""
	}
	n := s.snapshot()
	others := slices.DeleteFunc(slices.Clone(n.backends), func(o *backend.Backend) bool { return o.Name == b.Name })
	all := effectiveBackends(s.configured, append(others, b))
	at := slices.IndexFunc(all, func(d EffectiveBackend) bool { return d.Name == b.Name })
	ref := all[at].reference()
	if ref == nil {
		return "" // it is where the gateway is configured to reach it
	}
	var rivals []string
	counts := "this Backend"
	for i := range all {
		d := &all[i]
		if o := d.reference(); i == at || o == nil || d.Spec.REST != nil || keyOf(o) != keyOf(ref) {
			continue
		}
		rivals = append(rivals, fmt.Sprintf("%q", d.Name))
		if len(rivals) == 1 && i < at { // as in BackendStates.byService
			counts = rivals[0] + ", not by this Backend"
		}
	}
	if len(rivals) == 0 {
		return ""
	}
	if more := len(rivals) - maxRivals; more > 0 {
		rivals = append(rivals[:maxRivals], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("spec.service: port %d of Service %s/%s is also named by Backend %s; APIServices of that Service go by %s",
		apiservice.Port(ref), ref.Namespace, ref.Name, strings.Join(rivals, ", "), counts)
}
