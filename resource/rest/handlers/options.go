package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// listQuery has the ListOptions of a list, watch or deletecollection (docs/wire.md 5.1).
type listQuery struct {
	metav1.ListOptions
	revision int64 // ResourceVersion as a number
}

// parseListQuery parses and validates a query. Errors are 400s and 422s, and a 500 for the
// resourceVersion of a watch (docs/wire.md 5.1). If several parameters are
// invalid, it returns the error that kube-apiserver returns.
func parseListQuery(query url.Values, watch bool) (*listQuery, error) {
	q := &listQuery{}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &q.ListOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var badRevision error
	if q.revision, badRevision = parseRevision(q.ResourceVersion); badRevision == nil && q.revision == 0 && q.ResourceVersion != "" {
		q.ResourceVersion = "0"
	}
	if errs := listvalidation.ValidateListOptions(&internalversion.ListOptions{
		Watch: watch, ResourceVersion: q.ResourceVersion, ResourceVersionMatch: q.ResourceVersionMatch,
		Continue: q.Continue, SendInitialEvents: q.SendInitialEvents,
	}, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	switch {
	case watch:
		return q, badRevision
	case q.Continue != "" && (badRevision != nil || q.revision != 0):
		if _, _, err := resource.DecodeContinue(q.Continue); err != nil {
			return nil, err
		}
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case badRevision != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", badRevision))
	}
	return q, nil
}

// timeout returns the duration of a watch, 0 for the default. It is negative if it has
// passed, and bounded so that it cannot overflow.
func (q *listQuery) timeout() time.Duration {
	if q.TimeoutSeconds == nil {
		return 0
	}
	const year = 365 * 24 * 3600
	return time.Duration(min(max(*q.TimeoutSeconds, -1), year)) * time.Second
}

// listOptions returns the options of a list or a deletecollection.
func listOptions(r *http.Request, act *resource.Action, res *rest.Resource) (resource.ListOptions, error) {
	q, err := parseListQuery(r.URL.Query(), false)
	if err != nil {
		return resource.ListOptions{}, err
	}
	sel, err := res.Selector(act.Version, q.LabelSelector, q.FieldSelector, "")
	if err != nil {
		return resource.ListOptions{}, err
	}
	opts := resource.ListOptions{Selector: sel, Limit: max(q.Limit, 0), Continue: q.Continue}
	if res.Namespaced {
		opts.Namespace = act.Namespace
	}
	q.listAt(&opts)
	return opts, nil
}

// listAt sets the point in history of a list (docs/wire.md 5.2).
func (q *listQuery) listAt(opts *resource.ListOptions) {
	switch {
	case q.Continue != "": // the token has the revision
	case q.ResourceVersion == "":
		opts.At.Freshness = resource.Latest
	case q.revision == 0:
		// The state is not kept for further pages, so that the list is complete.
		opts.At.Freshness, opts.Limit = resource.Any, 0
	case q.ResourceVersionMatch == metav1.ResourceVersionMatchExact || q.ResourceVersionMatch == "" && opts.Limit > 0:
		opts.At = resource.At{Freshness: resource.Exact, Revision: q.revision}
	default:
		opts.At = resource.At{Freshness: resource.NotOlderThan, Revision: q.revision}
	}
}

// watchOptions returns the options of a watch.
func (q *listQuery) watchOptions(act *resource.Action, res *rest.Resource) (resource.WatchOptions, error) {
	// A watch without a resourceVersion begins with the current state.
	initial := q.revision == 0
	if q.SendInitialEvents != nil {
		initial = *q.SendInitialEvents
	}
	name := ""
	if act.InPath {
		name = act.Name
	}
	sel, err := res.Selector(act.Version, q.LabelSelector, q.FieldSelector, name)
	if err != nil {
		return resource.WatchOptions{}, err
	}
	opts := resource.WatchOptions{Selector: sel, Bookmarks: q.AllowWatchBookmarks, InitialEvents: initial}
	if res.Namespaced {
		opts.Namespace = act.Namespace
	}
	switch {
	case !initial:
		opts.Since = q.revision
	case q.ResourceVersion == "":
		opts.At.Freshness = resource.Latest
	case q.revision == 0:
		opts.At.Freshness = resource.Any
	default:
		opts.At = resource.At{Freshness: resource.NotOlderThan, Revision: q.revision}
	}
	return opts, nil
}

// watchList reports whether the watch replaces a list: it begins with initial events, and a
// bookmark marks their end (docs/wire.md 5.6).
func (q *listQuery) watchList() bool {
	return q.SendInitialEvents != nil && *q.SendInitialEvents && q.AllowWatchBookmarks
}

// parseRevision parses a resourceVersion; "" and "0" are 0. The error has no Status.
func parseRevision(text string) (int64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), text, err.Error())
	}
	return int64(rev), nil
}

// refuseExport is the 400 for the removed parameter export (docs/wire.md 1.3).
func refuseExport(q url.Values) error {
	export := false
	if values, ok := q["export"]; ok {
		_ = runtime.Convert_Slice_string_To_bool(&values, &export, nil) // returns no errors
	}
	if export {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return nil
}
