package resource

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// InconsistentRevision in a continue token continues at the latest revision instead of that
// of the earlier pages.
const InconsistentRevision = -1

// continueVersion is the only version of continue tokens.
const continueVersion = "meta.k8s.io/v1"

// continueToken is the content of a continue token, as in kube-apiserver.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// EncodeContinue returns the token for the page after lastKeyRelative, the storage path of
// the last object without the list's RangePath. rv is the revision of the list, or
// InconsistentRevision.
func EncodeContinue(rv int64, lastKeyRelative string) string {
	data, err := json.Marshal(continueToken{Version: continueVersion, Revision: rv, Start: lastKeyRelative + "\x00"})
	if err != nil {
		panic(err) // a struct of strings and numbers always encodes
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// DecodeContinue decodes a token: rv is a revision above 0 or InconsistentRevision, and the
// page begins with the first storage path that is not less than RangePath + start. start ends
// with a zero byte, so that the path before it is excluded, and never leaves the range.
// Errors: BadRequest.
func DecodeContinue(token string) (rv int64, start string, err error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, "", badContinue(err.Error())
	}
	var c continueToken
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, "", badContinue(err.Error())
	}
	switch {
	case c.Version != continueVersion:
		return 0, "", badContinue("server does not recognize this encoded version " + c.Version)
	case c.Revision == 0 || c.Revision < InconsistentRevision:
		return 0, "", badContinue("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case c.Start == "":
		return 0, "", badContinue("encoded start key empty (version meta.k8s.io/v1)")
	}
	// A key that path.Clean changes has "..", "." or empty segments, and could be outside of
	// the range that the request is authorized for.
	key := "/" + strings.TrimPrefix(c.Start, "/")
	if path.Clean(key) != key {
		return 0, "", badContinue(c.Start)
	}
	return c.Revision, key[1:], nil
}

func badContinue(why string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %s", why))
}
