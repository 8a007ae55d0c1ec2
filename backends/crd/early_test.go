package crd

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// heldFeed delivers nothing before it is released, like a feed of a gigabyte of objects.
type heldFeed struct {
	resource.Feed
	release chan struct{}
}

func (f *heldFeed) Run(ctx context.Context, sink resource.FeedSink) error {
	select {
	case <-f.release:
		return f.Feed.Run(ctx, sink)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// While the cache is being filled objects of the definitions stored at the start are read from
// and written to the storage. Only requests that need all objects get 429. Definitions that are
// created meanwhile are served once the cache is ready.
func TestServesWhileTheCacheIsFilled(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	before := over(t, kept)
	before.install(t, widgets)
	for _, name := range []string{"a", "b", "c"} {
		before.must(t, "POST", widgetPath, "", widget(name, "{size: small}"))
	}
	feed := &heldFeed{kept.Feed(), make(chan struct{})}
	s := fed(t, kept, feed)

	if got := s.must(t, "GET", widgetPath+"/a", "", ""); at(got, "spec", "size") != "small" {
		t.Errorf("got %v", got)
	}
	page := s.must(t, "GET", widgetPath+"?limit=2", "", "")
	next, _ := at(page, "metadata", "continue").(string)
	if items, _ := page["items"].([]any); len(items) != 2 || next == "" {
		t.Errorf("the first page is %v", page)
	}
	page = s.must(t, "GET", widgetPath+"?limit=2&continue="+next, "", "")
	if items, _ := page["items"].([]any); len(items) != 1 || at(page, "metadata", "continue") != "" {
		t.Errorf("the second page is %v", page)
	}
	s.must(t, "POST", widgetPath, "", widget("d", "{size: large}"))
	s.must(t, "PATCH", widgetPath+"/d", "application/merge-patch+json", `{"spec":{"replicas":3}}`)
	if got := s.must(t, "GET", widgetPath+"/d/scale", "", ""); at(got, "spec", "replicas") != 3.0 {
		t.Errorf("scaled to %v", got)
	}
	s.must(t, "DELETE", widgetPath+"/c", "", "")
	s.must(t, "POST", definitionPath, "", strings.NewReplacer("widgets", "gadgets", "Widget", "Gadget", "wd]", "gd]").Replace(widgets))

	var asked sync.WaitGroup
	for _, query := range []string{"", "?limit=2&labelSelector=a%3Db", "?watch=true"} {
		asked.Go(func() {
			a := s.send(t, "GET", widgetPath+query, "", "")
			if st := a.status(t); a.code != http.StatusTooManyRequests || st.Details == nil || st.Details.RetryAfterSeconds < 1 {
				t.Errorf("%q: %d %s", query, a.code, a.body)
			}
		})
	}
	asked.Wait()

	close(feed.release)
	await.Until(t, "everything was read", s.cache.Ready)
	if items, _ := s.must(t, "GET", widgetPath, "", "")["items"].([]any); len(items) != 3 {
		t.Errorf("%d objects are listed", len(items))
	}
	// A definition that was created meanwhile is served now, and changes are followed.
	const gadgetsPath = "/apis/example.com/v1/namespaces/default/gadgets"
	await.Until(t, "gadgets are served", func() bool { return s.send(t, "GET", gadgetsPath, "", "").code == http.StatusOK })
	s.must(t, "DELETE", widgetsByName, "", "")
	await.Until(t, "widgets are gone", func() bool { return s.send(t, "GET", widgetPath+"/a", "", "").code == http.StatusNotFound })
}
