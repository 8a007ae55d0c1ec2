package handlers

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/liststream"
)

// collectionPage is the limit of a page of the list.
const collectionPage = 10000

// deleteCollection implements DELETE on a collection: it deletes the objects of a list one
// after the other, with the same DeleteOptions. It is not atomic and stops at the first
// error. The response is the list as it was before. writeCap does not apply.
func (a *API) deleteCollection(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	chosen, err := listOptions(r, act, res)
	if err != nil {
		return err
	}
	opts, err := a.deleteOptions(r)
	if err != nil {
		return err
	}
	if unsafe := opts.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		return badOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	f, err := response.Negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	all, err := a.deletePages(r.Context(), act, res, chosen, opts)
	if err != nil {
		return explain(err)
	}
	return a.writeList(w, r, act, res, liststream.Contents{List: all}, f)
}

// deletePages deletes the objects of a list page by page. With a limit of the client it
// deletes one page.
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
		for i, o := range page.Items {
			if res.Prepare != nil && i%resource.PreparedTogether == 0 {
				if err := res.Prepare(page.Items[i:min(i+resource.PreparedTogether, len(page.Items))]); err != nil {
					return nil, err
				}
			}
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
