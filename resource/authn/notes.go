package authn

import "context"

// Notes are what an authenticator has to say about a valid credential.
type Notes struct {
	// Annotations are for the audit event of the request.
	Annotations map[string]string
	// Warnings are for the client.
	Warnings []string
}

// NotesKey is the key of the *Notes in the context of a request, which an authenticator adds to;
// without them notes are lost.
type NotesKey struct{}

// addTo adds n to the notes of a request.
func (n *Notes) addTo(ctx context.Context) {
	if n == nil {
		return
	}
	to, ok := ctx.Value(NotesKey{}).(*Notes)
	if !ok || to == nil {
		return
	}
	for key, value := range n.Annotations {
		to.annotate(key, value)
	}
	to.Warnings = append(to.Warnings, n.Warnings...)
}

// annotate adds an annotation.
func (n *Notes) annotate(key, value string) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[key] = value
}
