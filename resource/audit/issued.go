package audit

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// annotationIssued names the token that was issued, as later events name the one
// that a user came with (authentication.kubernetes.io/credential-id): so what was
// done with it is found by it.
const annotationIssued = "authentication.kubernetes.io/issued-credential-id"

// issues reports whether the request asks for a token of a service account.
func (q *Request) issues() bool {
	a := q.action
	return a.IsResource && a.Verb == "create" && a.Group == "" && a.Resource == "serviceaccounts" && a.Subresource == "token"
}

// noteIssued notes which token an answer has, if it has one: by its id, which
// opens nothing.
func (q *Request) noteIssued(answer []byte) {
	if id := tokenID(answer); id != "" {
		q.Annotate(annotationIssued, "JTI="+id)
	}
}

// tokenID is the id of the token in a TokenRequest that was answered; "" if there
// is none.
func tokenID(answer []byte) string {
	var request struct {
		Status struct{ Token string }
	}
	if json.Unmarshal(answer, &request) != nil {
		return ""
	}
	parts := strings.Split(request.Status.Token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.ID
}
