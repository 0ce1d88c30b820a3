"""Helpers of several tests that neither applications nor back ends need: logins of servers, proxies, real Samza."""
