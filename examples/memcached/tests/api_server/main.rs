//! The operator against a real API server, under exactly the rules that it declares. No controller of Kubernetes' own
//! runs here: a Deployment is there, and the tests make its pods.

mod memcached;
