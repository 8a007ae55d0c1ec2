package serve

import "net/http"

// cacheControl keeps responses out of shared caches unless the handler says
// otherwise.
func (s *Server) cacheControl(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchangeFrom(r.Context()).cacheControl = true
		next.ServeHTTP(w, r)
	})
}
