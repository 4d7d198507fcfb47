"""Place several objects together."""
