package resource

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// InconsistentRevision in a continue token goes on at the latest revision,
// whatever the earlier pages showed.
const InconsistentRevision = -1

// continueVersion is the one version of continue tokens there is.
const continueVersion = "meta.k8s.io/v1"

// continueToken is what a continue token says; kube-apiserver writes the same.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// EncodeContinue makes the token for the page after lastKeyRelative, which is
// the storage path of the last object sent without the list's RangePath. rv is
// the revision of the list, or InconsistentRevision.
func EncodeContinue(rv int64, lastKeyRelative string) string {
	data, err := json.Marshal(continueToken{Version: continueVersion, Revision: rv, Start: lastKeyRelative + "\x00"})
	if err != nil {
		panic(err) // a struct of strings and numbers always encodes
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// DecodeContinue reads a token: rv is a revision above 0 or
// InconsistentRevision, and the page begins with the first storage path that
// is not below RangePath + start (start ends with the zero byte that stands
// for "after this key"). The path never leaves the range. Errors: BadRequest.
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
	// A key that path.Clean would change has "..", "." or empty segments: it
	// could name something outside of the range that the request is
	// authorized for.
	key := "/" + strings.TrimPrefix(c.Start, "/")
	if path.Clean(key) != key {
		return 0, "", badContinue(c.Start)
	}
	return c.Revision, key[1:], nil
}

func badContinue(why string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %s", why))
}
