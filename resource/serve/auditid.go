package serve

import (
	"crypto/rand"
	"net/http"

	"github.com/google/uuid"
)

// headerAuditID, in canonical form, names one request in the logs of every
// process that it passes.
const headerAuditID = "Audit-Id"

// identify takes the request's audit id as it is, or makes one, and sends it
// back: so every response can be found in the logs. It stays in the request's
// header, where a proxy forwards it from.
func (x *exchange) identify(r *http.Request) {
	if ids := r.Header[headerAuditID]; len(ids) > 0 && ids[0] != "" {
		x.auditID[0] = ids[0]
		return
	}
	x.auditID[0] = newAuditID()
	r.Header[headerAuditID] = x.auditID[:]
}

// newAuditID is uuid.NewString with less garbage.
func newAuditID() string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // it never fails
	id[6] = id[6]&0x0f | 4<<4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
