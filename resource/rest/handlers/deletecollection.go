package handlers

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// collectionPage is how many objects are listed at a time.
const collectionPage = 10000

// deleteCollection answers DELETE on a collection: every object that the list
// options choose is deleted in turn, with the same delete options. It is not
// atomic and stops at the first error; the answer is the list of the objects as
// they were. Unlike other writes it has only the request's own deadline.
func (a *API) deleteCollection(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	chosen, err := a.listOptions(r, act, res)
	if err != nil {
		return err
	}
	opts, err := a.deleteOptions(r, res)
	if err != nil {
		return err
	}
	if unsafe := opts.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		return badOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	all, err := a.deletePages(r.Context(), act, res, chosen, opts)
	if err != nil {
		return explain(err)
	}
	return a.writeList(w, r, act, res, all)
}

// deletePages deletes what is chosen page by page; a limit of the client's own
// means one page of that size.
func (a *API) deletePages(ctx context.Context, act *resource.Action, res *rest.Resource, chosen resource.ListOptions, opts *metav1.DeleteOptions) (*resource.List, error) {
	onePage := chosen.Limit > 0
	if !onePage {
		chosen.Limit = collectionPage
	}
	var all *resource.List
	for {
		page, err := res.Store.List(ctx, chosen)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Items {
			_, err := newDeletion(a, act, res, o.Key(), opts).run(ctx)
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		if all == nil {
			all = &resource.List{Revision: page.Revision}
			if onePage {
				all.Continue, all.Remaining = page.Continue, page.Remaining
			}
		}
		all.Items = append(all.Items, page.Items...)
		if onePage || page.Continue == "" {
			return all, nil
		}
		chosen.Continue = page.Continue
	}
}
