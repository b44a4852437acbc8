//! The operator against a real API server, under exactly the rules that it declares. No controller of Kubernetes' own
//! runs here: a CronJob is there, and runs nothing.

mod cron_tab;
