package serve

import (
	"crypto/rand"
	"net/http"

	"github.com/google/uuid"
)

// headerAuditID, in canonical form, names one request in the logs of every
// process that it passes.
const headerAuditID = "Audit-Id"

// auditID takes the request's audit id as it is, or makes one, and sends it
// back. It stays in the request's header, where a proxy forwards it from.
func (s *Server) auditID(_ http.ResponseWriter, r *http.Request) bool {
	ids := r.Header[headerAuditID]
	if len(ids) == 0 || ids[0] == "" {
		ids = []string{newAuditID()}
		r.Header[headerAuditID] = ids
	}
	x := exchangeFrom(r.Context())
	x.auditID, x.auditHeader = ids[0], ids[:1:1]
	return true
}

// newAuditID is uuid.NewString with less garbage.
func newAuditID() string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // it never fails
	id[6] = id[6]&0x0f | 4<<4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
