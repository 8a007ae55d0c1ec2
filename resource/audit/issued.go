package audit

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// annotationIssued has the id of an issued token, in the form in which events of its use
// have it (authentication.kubernetes.io/credential-id).
const annotationIssued = "authentication.kubernetes.io/issued-credential-id"

// issues reports whether the request is a TokenRequest of a service account.
func (q *Request) issues() bool {
	a := q.action
	return a.IsResource && a.Verb == "create" && a.Group == "" && a.Resource == "serviceaccounts" && a.Subresource == "token"
}

// noteIssued annotates the id of the token in a response. The id is not a secret.
func (q *Request) noteIssued(answer []byte) {
	if id := tokenID(answer); id != "" {
		q.Annotate(annotationIssued, "JTI="+id)
	}
}

// tokenID returns the id of the token in a TokenRequest; "" if it has none.
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
